"""What a compiled program's text says: memory traffic, matrix products and collectives, loops times their trips.

The text is XLA's, after scheduling: an instruction a line, each value with its layout, tiles (which pad it) and memory
space. `S(1)` and above are on the chip; what has no `S` lies in HBM and costs its bandwidth.
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
# They move nothing themselves.
FREE = {
    "parameter", "constant", "get-tuple-element", "tuple", "bitcast", "while", "conditional", "call", "after-all",
    "partition-id", "replica-id", "iota", "opt-barrier", "async-done", "async-update", "domain",
}  # fmt: skip
READS_A_PART = ("dynamic-slice", "slice", "gather")
WRITES_A_PART = ("dynamic-update-slice", "scatter")
SAME = ("bitcast", "copy", "convert", "reshape", "transpose")  # each number where it was, under another name


@dataclass(frozen=True)
class Array:
    dtype: str
    shape: tuple[int, ...]
    layout: str

    @property
    def in_memory(self) -> bool:
        """In HBM, and not on the chip."""
        return "S(" not in self.layout

    @property
    def content(self) -> int:
        """Bytes without padding."""
        return BYTES.get(self.dtype, 4) * math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """With the padding of its tiles."""
        order, _, rest = self.layout.partition(":")
        sizes = [self.shape[int(axis)] for axis in order.split(",") if axis]  # the innermost first
        tile = re.match(r"T\(([\d,]+)\)", rest)
        for place, side in enumerate(reversed(tile[1].split(",")) if tile else ()):
            if place < len(sizes):
                sizes[place] = -(-sizes[place] // int(side)) * int(side)
        return BYTES.get(self.dtype, 4) * math.prod(sizes or self.shape)


@dataclass
class Instruction:
    name: str
    kind: str
    outputs: list[Array]
    operands: list[str]
    attributes: str
    root: bool


@dataclass
class Collective:
    kind: str
    bytes: float  # of one chip's values, each time
    trips: int
    members: int  # chips that take part together; 0: all
    asynchronous: bool


@dataclass
class Operation:
    """What an instruction costs, each time."""

    name: str
    trips: int
    traffic: float
    flops: float
    made_by: str  # the name of what was traced
    is_kernel: bool = False

    @property
    def kernel(self) -> str:
        """The Pallas kernel's name, "" for other operations. XLA appends a number to it, or how it copied it.

        >>> Operation("short_attention.12.clone", 1, 0.0, 0.0, "", is_kernel=True).kernel
        'short_attention'
        """
        return re.sub(r"(\.(\d+|clone|remat\d*))+$", "", self.name) if self.is_kernel else ""


@dataclass
class Program:
    operations: list[Operation] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)

    @property
    def traffic(self) -> float:
        """Bytes to and from HBM."""
        return sum(each.traffic * each.trips for each in self.operations)

    @property
    def kernels(self) -> Counter[str]:
        """How often a step runs each Pallas kernel."""
        runs: Counter[str] = Counter()
        for operation in self.operations:
            if operation.kernel:
                runs[operation.kernel] += operation.trips
        return runs


def read(text: str) -> Program:
    """The program that `compiled.as_text()` describes."""
    return Reader(text).program()


class Reader:
    def __init__(self, text: str):
        self.computations: dict[str, dict[str, Instruction]] = {}
        self.entry = ""
        current: dict[str, Instruction] = {}
        for line in text.splitlines():
            if head := HEAD.match(line):
                current = self.computations[head[2]] = {}
                if head[1]:
                    self.entry = head[2]
            elif match := LINE.match(line):
                instruction = parse(match[1], match[2], line.lstrip().startswith("ROOT"))
                current[match[1]] = instruction

    def program(self) -> Program:
        found = Program()
        self.walk(self.entry, 1, found)
        return found

    def walk(self, name: str, trips: int, found: Program) -> None:
        here = self.computations[name]
        for each in here.values():
            called = self.called(each)
            if each.kind == "while":
                times = trips * self.trip_count(each)
                self.walk(called["body"], times, found)
            elif each.kind in ("call", "conditional"):
                for branch in self.branches(each):
                    self.walk(branch, trips, found)
            if each.kind.removesuffix("-start") in COLLECTIVES:
                found.collectives.append(self.collective(each, here, trips))
            if each.kind in FREE or each.kind.endswith("-done") or "AllocateBuffer" in each.attributes:
                continue
            kernel = each.kind == "custom-call" and "tpu_custom_call" in each.attributes
            traffic, flops = self.traffic(each, here), self.flops(each)
            found.operations.append(Operation(each.name, trips, traffic, flops, made_by(each), kernel))

    def called(self, each: Instruction) -> dict[str, str]:
        return dict(re.findall(r"(calls|body|condition|to_apply)=%([^\s,)]+)", each.attributes))

    def branches(self, each: Instruction) -> list[str]:
        listed = re.search(r"branch_computations=\{([^}]*)\}", each.attributes)
        if listed:
            return [name.strip().lstrip("%") for name in listed[1].split(",")][:1]
        return [name for key, name in self.called(each).items() if key == "to_apply"]

    def trip_count(self, loop: Instruction) -> int:
        """As XLA found it, or the constant that the loop's counter is compared with."""
        if known := re.search(r'known_trip_count":\{"n":"(\d+)"', loop.attributes):
            return int(known[1])
        condition = self.computations[self.called(loop)["condition"]]
        bounds = [
            int(match[1])
            for each in condition.values()
            if each.kind == "constant" and (match := re.match(r"(\d+)\)", each.attributes))
        ]
        return max(bounds, default=1)

    def traffic(self, each: Instruction, here: dict[str, Instruction]) -> float:
        inner = self.computations.get(self.called(each).get("calls", ""), None)
        values = [here[name].outputs if name in here else [] for name in each.operands]
        if each.kind == "fusion" and inner:
            return sum(self.fused_reads(inner, values)) + self.fused_writes(inner, each.outputs)
        if each.kind in READS_A_PART:
            return 2 * size(each.outputs) if any(map(size, values)) else size(each.outputs)
        if each.kind == "dynamic-update-slice":
            return size(values[1]) * 2
        if each.kind == "scatter":
            return 3 * size(values[-1])
        if each.kind == "slice-start":
            return size(each.outputs[1:2]) + (bytes_of(each.outputs[1:2]) if any(map(size, values)) else 0)
        if each.kind == "copy-start":
            # From one memory to another: its outputs are the copy, the original and a semaphore.
            return size(each.outputs[:1]) + size(values[0])
        if each.kind.removesuffix("-start") in COLLECTIVES:
            return 2 * sum(size(value) for value in values)
        return size(each.outputs) + sum(size(value) for value in values)

    def fused_reads(self, inner: dict[str, Instruction], values: list[list[Array]]) -> Iterator[float]:
        """What a fusion reads of each operand: of those that it only looks into, the parts it takes."""
        for each in inner.values():
            if each.kind == "parameter":
                number = int(each.attributes.split(")")[0])
                whole = size(values[number]) if number < len(values) else 0
                yield min(self.looked_at(inner, each.name), whole) if whole else 0

    def looked_at(self, inner: dict[str, Instruction], name: str) -> float:
        """Bytes of the parts that are taken of a value; without bound if somebody takes all of it."""
        parts = 0.0
        for user in inner.values():
            for place in (place for place, operand in enumerate(user.operands) if operand == name):
                if user.kind in READS_A_PART and place == 0:
                    parts += bytes_of(user.outputs)
                elif user.kind in WRITES_A_PART and place == 0:
                    parts += bytes_of(inner[user.operands[-1]].outputs) if user.kind == "scatter" else 0
                elif user.kind in SAME or "output_to_operand_aliasing" in user.attributes:
                    parts += math.inf if user.root else self.looked_at(inner, user.name)
                elif user.kind == "fusion":
                    nested = self.computations[self.called(user)["calls"]]
                    parameters = [each for each in nested.values() if each.kind == "parameter"]
                    own = next(each for each in parameters if each.attributes.startswith(f"{place})"))
                    parts += self.looked_at(nested, own.name)
                else:
                    return math.inf
        return parts

    def fused_writes(self, inner: dict[str, Instruction], outputs: list[Array]) -> float:
        root = next(each for each in inner.values() if each.root)
        roots = [inner[name] for name in root.operands] if root.kind == "tuple" else [root]
        total = 0.0
        for output, source in zip(outputs, roots, strict=False):
            while source.kind == "bitcast":
                source = inner[source.operands[0]]
            if not output.in_memory:
                continue
            if source.kind == "dynamic-update-slice":
                total += bytes_of(inner[source.operands[1]].outputs)
            elif source.kind == "scatter":
                total += bytes_of(inner[source.operands[-1]].outputs)
            else:
                total += output.bytes
        return total

    def flops(self, each: Instruction) -> float:
        """Of the matrix products in it, which the TPU compiler writes as convolutions."""
        inner = self.computations.get(self.called(each).get("calls", ""), {})
        return sum(
            convolution(part, inner) if part.kind == "convolution" else self.flops(part)
            for part in inner.values()
        )

    def collective(self, each: Instruction, here: dict, trips: int) -> Collective:
        kind = each.kind.removesuffix("-start")
        values = [array for name in each.operands if name in here for array in here[name].outputs]
        # What crosses of a sum are parts of it, which have its type, wider perhaps than what is added up.
        moved = float(sum(array.content for array in (each.outputs if kind == "all-reduce" else values)))
        return Collective(kind, moved, trips, members(each), each.kind.endswith("-start"))


def parse(name: str, rest: str, root: bool) -> Instruction:
    # The type may be a tuple, whose layouts hold brackets of their own.
    end = closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    kind, _, tail = rest[end:].lstrip().partition("(")
    outputs = [
        Array(dtype, tuple(int(n) for n in shape.split(",") if n), layout)
        for dtype, shape, layout in ARRAY.findall(rest[:end])
    ]
    stop = closing("(" + tail, 0) - 1
    operands = re.findall(r"%([^\s,()]+)", tail[: max(stop, 0)])
    return Instruction(name, kind, outputs, operands, tail, root)


def closing(text: str, start: int) -> int:
    """Where the bracket that opens at `start` closes."""
    depth = 0
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if not depth:
            return place
    return len(text)


def size(arrays: list[Array]) -> float:
    """Bytes of those in HBM."""
    return float(sum(array.bytes for array in arrays if array.in_memory))


def bytes_of(arrays: list[Array]) -> float:
    return float(sum(array.bytes for array in arrays))


def convolution(each: Instruction, inner: dict[str, Instruction]) -> float:
    """2 x outputs x the numbers that each of them sums over, of which those in the padding do not count."""
    (left, kernel, out), *_ = re.findall(r"dim_labels=(\w+)_(\w+)->(\w+)", each.attributes)
    shapes = [inner[name].outputs[0].shape for name in each.operands[:2]] + [each.outputs[0].shape]
    sizes = [
        dict(zip(labels, shape, strict=True))
        for labels, shape in zip((left, kernel, out), shapes, strict=True)
    ]
    window = dict(re.findall(r"(\w+)=([\dx_-]+)", attribute(each, "window")))
    total = 2.0 * sizes[2]["b"] * sizes[2]["f"] * sizes[1]["i"]
    for axis in sorted(label for label in out if label.isdigit()):
        place = int(axis)

        def of(name: str, otherwise: int, place=place) -> int:
            return int(window[name].split("x")[place]) if name in window else otherwise

        before = int(window["pad"].split("x")[place].split("_")[0]) if "pad" in window else 0
        total *= pairs(
            sizes[0][axis], of("size", 1), sizes[2][axis], before,
            of("stride", 1), of("lhs_dilate", 1), of("rhs_dilate", 1),
        )  # fmt: skip
    return total


def pairs(left: int, window: int, out: int, before: int, stride: int, spread: int, reach: int) -> int:
    """How many products one axis of a convolution has: (output, place in the window) that meet a number."""
    found = 0
    for output in range(out):
        for place in range(window):
            at = output * stride + place * reach - before
            found += 0 <= at < (left - 1) * spread + 1 and at % spread == 0
    return found


def attribute(each: Instruction, name: str) -> str:
    found = re.search(name + r"=\{([^}]*)\}", each.attributes)
    return found[1] if found else ""


def members(each: Instruction) -> int:
    """How many devices a collective joins; 0 where the text does not say."""
    groups = re.search(r"replica_groups=(.*?), \w+=", each.attributes)
    if not groups:
        return 0
    if named := re.match(r"mesh\[(.*?)\] *\{(.*?)\}", groups[1]):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", named[1]))
        return math.prod(int(sizes[axis]) for axis in re.findall(r"'(\w+)'", named[2]))
    if counted := re.match(r"\[(\d+),(\d+)\]", groups[1]):
        return int(counted[2])
    listed = re.match(r"\{\{([\d,]*)\}", groups[1])
    return len(listed[1].split(",")) if listed and listed[1] else 0


def made_by(each: Instruction) -> str:
    named = re.search(r'op_name="([^"]*)"', each.attributes)
    return named[1] if named else each.kind
