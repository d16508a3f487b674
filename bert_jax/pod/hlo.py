"""Read memory traffic, matrix products and collectives from a compiled program's text, loops times their trips.

The text is XLA's, after scheduling: one instruction per line, each value with its layout, tiles (which pad it) and
memory space. `S(1)` and above are on the chip; a value without `S` is in HBM and costs its bandwidth.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "s64": 8, "u64": 8, "f64": 8}
ARRAY = re.compile(r"(\w+)\[([\d,]*)\](?:\{([^{}]*)\})?")
HEAD = re.compile(r"^(ENTRY )?%(\S+) \(.*\{$")
LINE = re.compile(r"^\s+(?:ROOT )?%(\S+) = (.*)$")
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "collective-permute", "all-to-all")
ASYNC_START = 'custom_call_target="AsyncCollectiveStart"'
# Kinds of instructions that move nothing themselves.
FREE_OPCODES = {
    "parameter", "constant", "get-tuple-element", "tuple", "bitcast", "while", "conditional", "call", "after-all",
    "partition-id", "replica-id", "iota", "opt-barrier", "async-done", "async-update", "domain", "call-start",
    "call-update",
}  # fmt: skip
READS_A_PART = ("dynamic-slice", "slice", "gather")
WRITES_A_PART = ("dynamic-update-slice", "scatter")
# Settings of a convolution's window, and their defaults.
WINDOW = {"size": 1, "pad": 0, "stride": 1, "lhs_dilate": 1, "rhs_dilate": 1}
# The same numbers under another name.
RENAMING_OPCODES = ("bitcast", "copy", "convert", "reshape", "transpose")


@dataclass(frozen=True)
class HloArray:
    dtype: str
    shape: tuple[int, ...]
    layout: str

    @property
    def is_in_hbm(self) -> bool:
        """Whether it is in HBM, not on the chip."""
        return "S(" not in self.layout

    @property
    def content(self) -> int:
        """The bytes without padding."""
        return BYTES.get(self.dtype, 4) * math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The bytes with the padding of its tiles."""
        order, _, rest = self.layout.partition(":")
        sizes = [self.shape[int(axis)] for axis in order.split(",") if axis]  # the innermost first
        tile = re.match(r"T\(([\d,]+)\)", rest)
        sides = [int(side) for side in reversed(tile[1].split(","))] if tile else []
        for axis, side in enumerate(sides[: len(sizes)]):
            sizes[axis] = -(-sizes[axis] // side) * side
        return BYTES.get(self.dtype, 4) * math.prod(sizes or self.shape)


@dataclass
class Instruction:
    name: str
    opcode: str
    outputs: list[HloArray]
    operands: list[str]
    attributes: str
    root: bool

    @property
    def called(self) -> dict[str, str]:
        """The computations that it runs, by their role: calls, body, condition or to_apply."""
        return dict(re.findall(r"(calls|body|condition|to_apply)=%([^\s,)]+)", self.attributes))

    @property
    def branches(self) -> list[str]:
        """The first branch of a conditional, or the computation of a call."""
        if listed := re.search(r"branch_computations=\{%?([^},\s]*)", self.attributes):
            return [listed[1]]
        return [name for key, name in self.called.items() if key == "to_apply"]

    @property
    def members(self) -> int:
        """The number of devices that a collective joins; 0 if the text does not say."""
        groups = re.search(r"replica_groups=(.*?), \w+=", self.attributes)
        if not groups:
            return 0
        if named := re.match(r"mesh\[(.*?)\] *\{(.*?)\}", groups[1]):
            sizes = dict(re.findall(r"'(\w+)'=(\d+)", named[1]))
            return math.prod(int(sizes[axis]) for axis in re.findall(r"'(\w+)'", named[2]))
        if counted := re.match(r"\[(\d+),(\d+)\]", groups[1]):
            return int(counted[2])
        listed = re.match(r"\{\{([\d,]+)\}", groups[1])
        return listed[1].count(",") + 1 if listed else 0


Computation = dict[str, Instruction]


@dataclass
class Collective:
    opcode: str
    bytes: float  # of one device's values, for each run
    trips: int
    members: int  # devices of a group; 0: all
    asynchronous: bool


@dataclass
class Operation:
    """What one run of an instruction costs."""

    name: str
    trips: int
    traffic: float
    flops: float
    is_kernel: bool = False

    @property
    def kernel(self) -> str:
        """The Pallas kernel's name, without what XLA appends: numbers, "clone" or "remat". "" for other operations.

        >>> Operation("short_attention.12.clone", 1, 0.0, 0.0, is_kernel=True).kernel
        'short_attention'
        """
        return re.sub(r"(\.(\d+|clone|remat\d*))+$", "", self.name) if self.is_kernel else ""


@dataclass
class HloProgram:
    operations: list[Operation] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)

    @property
    def traffic(self) -> float:
        """The bytes moved to and from HBM."""
        return sum(operation.traffic * operation.trips for operation in self.operations)

    @property
    def kernels(self) -> Counter[str]:
        """How often a step runs each Pallas kernel."""
        runs: Counter[str] = Counter()
        for operation in self.operations:
            if operation.kernel:
                runs[operation.kernel] += operation.trips
        return runs


def parse_program(text: str) -> HloProgram:
    """Read the program that `compiled.as_text()` describes."""
    computations, entry = parse_computations(text)
    program = HloProgram()
    CostReader(computations, program).walk(entry, 1)
    return program


def parse_computations(text: str) -> tuple[dict[str, Computation], str]:
    """Return all computations of the text by name, and the name of the entry."""
    computations: dict[str, Computation] = {}
    entry = ""
    for line in text.splitlines():
        if head := HEAD.match(line):
            current = computations[head[2]] = {}
            entry = head[2] if head[1] else entry
        elif match := LINE.match(line):
            current[match[1]] = parse_instruction(match[1], match[2], line.lstrip().startswith("ROOT"))
    return computations, entry


@dataclass
class CostReader:
    computations: dict[str, Computation]
    program: HloProgram

    def walk(self, name: str, trips: int, started: bool = False) -> None:
        """Add the cost of a computation that runs `trips` times; `started`: beside others, on SparseCores."""
        here = self.computations[name]
        for instruction in here.values():
            opcode = instruction.opcode
            if opcode == "while":
                self.walk(instruction.called["body"], trips * self.trip_count(instruction))
            elif opcode in ("call", "call-start", "conditional"):
                for branch in instruction.branches:
                    self.walk(branch, trips, started or opcode == "call-start")
            if opcode.removesuffix("-start") in COLLECTIVES:
                self.program.collectives.append(make_collective(instruction, here, trips, started))
            if opcode == "fusion":
                self.program.collectives += self.started_collectives(instruction, trips)
            if (
                opcode in FREE_OPCODES
                or opcode.endswith("-done")
                or "AllocateBuffer" in instruction.attributes
            ):
                continue
            is_kernel = opcode == "custom-call" and "tpu_custom_call" in instruction.attributes
            traffic, flops = self.traffic(instruction, here), self.flops(instruction)
            self.program.operations.append(Operation(instruction.name, trips, traffic, flops, is_kernel))

    def started_collectives(self, instruction: Instruction, trips: int) -> list[Collective]:
        """Return the collectives that a fusion starts.

        Later fusions name them again, because they continue them beside their own products.
        """
        inner = self.inner(instruction)
        if not any(ASYNC_START in part.attributes for part in inner.values()):
            return []
        return [
            make_collective(part, inner, trips, True) for part in inner.values() if part.opcode in COLLECTIVES
        ]

    def trip_count(self, loop: Instruction) -> int:
        """Return the count that XLA found, or the constant that the loop's counter is compared with."""
        if known := re.search(r'known_trip_count":\{"n":"(\d+)"', loop.attributes):
            return int(known[1])
        condition = self.computations[loop.called["condition"]].values()
        constants = [re.match(r"(\d+)\)", i.attributes) for i in condition if i.opcode == "constant"]
        return max((int(match[1]) for match in constants if match), default=1)

    def inner(self, instruction: Instruction) -> Computation:
        """Return the computation of a fusion; {} for other instructions."""
        return self.computations.get(instruction.called.get("calls", ""), {})

    def traffic(self, instruction: Instruction, here: Computation) -> float:
        opcode, outputs, inner = instruction.opcode, instruction.outputs, self.inner(instruction)
        values = [here[name].outputs if name in here else [] for name in instruction.operands]
        if opcode == "fusion-start":  # on a GPU; its outputs are its operands, the result and a context
            outputs = outputs[sum(map(len, values)) : -1]
        if opcode.removesuffix("-start") == "fusion" and inner:
            return sum(self.fused_reads(inner, values)) + fused_writes(inner, outputs)
        if opcode in READS_A_PART:
            return 2 * hbm_bytes(outputs) if any(map(hbm_bytes, values)) else hbm_bytes(outputs)
        if opcode == "dynamic-update-slice":
            return hbm_bytes(values[1]) * 2
        if opcode == "scatter":
            return 3 * hbm_bytes(values[-1])
        if opcode == "slice-start":
            return hbm_bytes(outputs[1:2]) + (total_bytes(outputs[1:2]) if any(map(hbm_bytes, values)) else 0)
        if opcode == "copy-start":
            # From one memory to another: its outputs are the copy, the original and a semaphore.
            return hbm_bytes(outputs[:1]) + hbm_bytes(values[0])
        if opcode.removesuffix("-start") in COLLECTIVES:
            return 2 * sum(map(hbm_bytes, values))
        return hbm_bytes(outputs) + sum(map(hbm_bytes, values))

    def fused_reads(self, inner: Computation, values: list[list[HloArray]]) -> Iterator[float]:
        """Yield the bytes that a fusion reads of each operand; if it takes only parts of an operand, theirs."""
        for number, parameter in parameters(inner).items():
            whole = hbm_bytes(values[number]) if number < len(values) else 0
            yield min(self.parts_read(inner, parameter.name), whole) if whole else 0

    def parts_read(self, inner: Computation, name: str) -> float:
        """Return the bytes of the parts that are read of a value; infinite if an instruction reads all of it."""
        parts = 0.0
        for user in inner.values():
            for number in (number for number, operand in enumerate(user.operands) if operand == name):
                if user.opcode in READS_A_PART and number == 0:
                    parts += total_bytes(user.outputs)
                elif user.opcode in WRITES_A_PART and number == 0:
                    parts += total_bytes(inner[user.operands[-1]].outputs) if user.opcode == "scatter" else 0
                elif user.opcode in RENAMING_OPCODES or "output_to_operand_aliasing" in user.attributes:
                    parts += math.inf if user.root else self.parts_read(inner, user.name)
                elif user.opcode == "fusion":
                    nested = self.inner(user)
                    parts += self.parts_read(nested, parameters(nested)[number].name)
                else:
                    return math.inf
        return parts

    def flops(self, instruction: Instruction) -> float:
        """Return the FLOPs of its matrix products, which the TPU compiler writes as convolutions."""
        inner = self.inner(instruction)
        return sum(
            convolution_flops(part, inner) if part.opcode == "convolution" else self.flops(part)
            for part in inner.values()
        )


def parameters(computation: Computation) -> dict[int, Instruction]:
    return {int(i.attributes.split(")")[0]): i for i in computation.values() if i.opcode == "parameter"}


def fused_writes(inner: Computation, outputs: list[HloArray]) -> float:
    root = next(instruction for instruction in inner.values() if instruction.root)
    roots = [inner[name] for name in root.operands] if root.opcode == "tuple" else [root]
    total = 0.0
    for output, source in zip(outputs, roots, strict=False):
        while source.opcode == "bitcast":
            source = inner[source.operands[0]]
        if output.is_in_hbm and source.opcode in WRITES_A_PART:
            written = source.operands[1 if source.opcode == "dynamic-update-slice" else -1]
            total += total_bytes(inner[written].outputs)
        elif output.is_in_hbm:
            total += output.bytes
    return total


def make_collective(
    instruction: Instruction, here: Computation, trips: int, started: bool = False
) -> Collective:
    opcode = instruction.opcode.removesuffix("-start")
    values = [array for name in instruction.operands if name in here for array in here[name].outputs]
    # A sum sends partial sums. They have the type of the result, which may be wider than that of the operands.
    moved = sum(array.content for array in (instruction.outputs if opcode == "all-reduce" else values))
    return Collective(
        opcode, float(moved), trips, instruction.members, started or instruction.opcode.endswith("-start")
    )


def parse_instruction(name: str, rest: str, root: bool) -> Instruction:
    # The type may be a tuple, whose layouts contain brackets, too.
    end = find_closing_bracket(rest) + 1 if rest.startswith("(") else rest.index(" ")
    opcode, _, tail = rest[end:].lstrip().partition("(")
    outputs = [
        HloArray(dtype, tuple(int(n) for n in shape.split(",") if n), layout)
        for dtype, shape, layout in ARRAY.findall(rest[:end])
    ]
    operands = re.findall(r"%([^\s,()]+)", tail[: max(find_closing_bracket("(" + tail) - 1, 0)])
    return Instruction(name, opcode, outputs, operands, tail, root)


def find_closing_bracket(text: str) -> int:
    """Return the index of the bracket that closes the first one of the text."""
    depth = 0
    for index, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if not depth:
            return index
    return len(text)


def hbm_bytes(arrays: list[HloArray]) -> float:
    """Return the bytes of those arrays that are in HBM."""
    return total_bytes([array for array in arrays if array.is_in_hbm])


def total_bytes(arrays: list[HloArray]) -> float:
    return float(sum(array.bytes for array in arrays))


def convolution_flops(instruction: Instruction, inner: Computation) -> float:
    """Return its FLOPs: 2 x outputs x the terms of each sum, without those in the padding."""
    labels = re.findall(r"dim_labels=(\w+)_(\w+)->(\w+)", instruction.attributes)[0]
    arrays = [inner[name].outputs[0] for name in instruction.operands[:2]] + instruction.outputs[:1]
    left, kernel, out = (
        dict(zip(names, array.shape, strict=True)) for names, array in zip(labels, arrays, strict=True)
    )
    window = re.search(r"window=\{([^}]*)\}", instruction.attributes)
    settings = dict(re.findall(r"(\w+)=([\dx_-]+)", window[1])) if window else {}
    total = 2.0 * out["b"] * out["f"] * kernel["i"]
    for axis in sorted(filter(str.isdigit, out)):
        size, pad, stride, spread, reach = (
            int(settings[name].split("x")[int(axis)].split("_")[0]) if name in settings else default
            for name, default in WINDOW.items()
        )
        total *= count_products(left[axis], size, out[axis], pad, stride, spread, reach)
    return total


def count_products(
    left: int, window: int, out: int, before: int, stride: int, spread: int, reach: int
) -> int:
    """Count the products along one axis of a convolution: pairs (output, index in the window) that meet an input."""
    met = (output * stride + index * reach - before for output in range(out) for index in range(window))
    return sum(0 <= at < (left - 1) * spread + 1 and at % spread == 0 for at in met)
