"""What each operation of a compiled program is for, and the bytes that it reads and writes.

XLA fuses instructions. A fused operation counts as its instruction with the most arithmetic, and as movement of data
only if it computes nothing. The metadata of an operation says where it comes from: the names of the modules.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bert_jax.pod.hlo import Computation, CostReader, HloProgram, Instruction, parse_computations

COSTLY = {"exponential", "exponential-minus-one", "erf", "tanh", "log", "log-plus-one", "rsqrt", "sqrt", "divide",
          "power", "logistic", "cosine", "sine"}  # fmt: skip
COST = 8  # arithmetic of one of these; an addition counts as 1
MOVES = {
    "copy", "transpose", "bitcast", "bitcast-convert", "reshape", "broadcast", "convert", "concatenate", "slice", "pad",
    "reverse", "iota", "constant", "parameter", "tuple", "get-tuple-element", "dynamic-slice", "dynamic-update-slice",
    "gather", "reduce-precision", "opt-barrier", "fusion", "custom-call",
}  # fmt: skip
# XLA for GPUs calls libraries: cuBLAS for matrix products, and cuDNN for a whole attention.
LIBRARY_DOT, FUSED_ATTENTION = 'custom_call_target="__cublas$', 'custom_call_target="__cudnn$fmha'
# Our own kernel: the products of a tile that each of its programs computes.
FLASH = re.compile(r"/(flash_attention\w*)/pallas_call")
FLASH_PRODUCTS = {"flash_attention": 2, "flash_attention_backward": 7, "flash_attention_bias": 2}
BATCHED = re.compile(r'lhs_batch_dim(s=\{|ensions":\[)"?\d')
SUMMED = re.compile(r'lhs_contracting_dim(?:s=\{|ensions":\[)([\d,"]*)')
BACKWARD = "transpose(jvp("


@dataclass(frozen=True)
class InstructionSource:
    """Where an instruction comes from."""

    opcode: str  # dot, add, ...
    path: str  # names of modules and functions, as JAX writes them
    instruction: Instruction
    trains: bool  # whether the program has a backward pass

    def names(self, pattern: str) -> bool:
        return re.search(pattern, self.path) is not None


# The parts of a program: name -> whether an instruction belongs to it. The first match counts.
PARTS: dict[str, Callable[[InstructionSource], bool]] = {
    "dropout: random numbers": lambda o: makes_random_numbers(o.instruction),
    "head and loss": lambda o: o.names(r"/(mlm|nsp|pooler|classify|tag|answer|decoder)/|jvp\(\)"),
    "attention kernel": lambda o: FUSED_ATTENTION in o.instruction.attributes or o.names(FLASH.pattern),
    # Dense products may be batched, too, because cuBLAS splits long sums.
    "attention products": lambda o: is_dot(o.instruction)
    and bool(BATCHED.search(o.instruction.attributes))
    and not o.names(r"/(qkv|out)/"),
    "dense products": lambda o: is_dot(o.instruction),
    "embeddings": lambda o: o.names(r"/embeddings/|\(_take\)") or o.opcode == "scatter",
    "normalisation": lambda o: o.names(r"norm/"),
    "softmax": lambda o: o.names(r"/attention/"),
    "GELU and biases": lambda o: o.names(r"/feed_forward/"),
    "dropout and residuals": lambda o: o.names(r"/(block|layers_\d+)/"),
    "optimizer": lambda o: o.trains and "jvp(" not in o.path and not o.names(r"/encoder/"),
    "other arithmetic": lambda o: True,
}  # fmt: skip
SLICES = "slices and stacks of the scan"
COPIES = "copies and casts"


@dataclass(frozen=True)
class ProgramPart:
    """An operation of the program, and the cost of one run."""

    name: str  # one of PARTS, or SLICES or COPIES
    bytes: float
    trips: int  # how often the program runs it


def read_parts(text: str) -> dict[str, ProgramPart]:
    """Return the operations of `compiled.as_text()` by name."""
    computations, entry = parse_computations(text)
    reader, trains = CostReader(computations, HloProgram()), BACKWARD in text
    reader.walk(entry, 1)
    trips = {operation.name: operation.trips for operation in reader.program.operations}
    inner = {called for c in computations.values() for i in c.values() for called in fused_computations(i)}
    parts: dict[str, ProgramPart] = {}
    for name, computation in computations.items():
        if name in inner:
            continue
        for instruction in computation.values():
            members = list(instructions_within(instruction, computation, computations))
            amount, chosen = max(
                ((estimate_work(i, here), i) for i, here in members), key=lambda item: item[0]
            )
            chosen = chosen if amount else instruction
            origin = InstructionSource(
                chosen.opcode, source_path(chosen) or source_path(instruction), chosen, trains
            )
            parts[instruction.name] = ProgramPart(
                next(name for name, fits in PARTS.items() if fits(origin))
                if amount
                else movement_name(members),
                reader.traffic(instruction, computation),
                trips.get(instruction.name, 1),
            )
    return parts


def fused_computations(instruction: Instruction) -> list[str]:
    """Return the computations whose instructions run only as a part of this instruction."""
    called = instruction.called
    inner = [called["calls"]] if "calls" in called else []
    return inner + ([called["to_apply"]] if "to_apply" in called and instruction.opcode != "call" else [])


def instructions_within(
    instruction: Instruction, here: Computation, computations: dict[str, Computation]
) -> Iterator[tuple[Instruction, Computation]]:
    """Yield the instruction or, for a fusion, the instructions inside it, each with its computation."""
    nested = computations.get(instruction.called.get("calls", ""))
    if not nested:
        yield instruction, here
        return
    for part in nested.values():
        yield from instructions_within(part, nested, computations)


def estimate_work(instruction: Instruction, here: Computation) -> float:
    """Estimate its arithmetic: the FLOPs of products, and 0 if it only moves data.

    For other instructions, it is the size of the largest output or operand (of a scatter: the updates), times the cost
    of one number.
    """
    if flops := product_flops(instruction, here):
        return flops
    if instruction.opcode in MOVES:
        return 0.0
    reads = [array for name in instruction.operands if name in here for array in here[name].outputs]
    sizes = [math.prod(array.shape) for array in [*instruction.outputs, *reads]]
    if instruction.opcode == "scatter":
        sizes = [math.prod(array.shape) for array in reads[-1:]]
    largest = max(sizes, default=0)
    if largest <= 1:  # an index
        return 0.0
    return largest * (COST if instruction.opcode in COSTLY else 1)


def product_flops(instruction: Instruction, here: Computation) -> float:
    """Return the FLOPs of matrix products, 2 x outputs x terms of each sum; 0 for an instruction without any."""
    if is_dot(instruction):
        return 2.0 * math.prod(instruction.outputs[0].shape) * summed_terms(instruction, here)
    if FUSED_ATTENTION in instruction.attributes:
        # [B, H, L, K]: two products forward; backward the scores again, and four gradients.
        shape, products = instruction.outputs[0].shape, 5 if "Backward" in instruction.attributes else 2
        return 2.0 * products * math.prod(shape) * shape[-2]
    if (kernel := FLASH.search(source_path(instruction))) and instruction.opcode == "custom-call":
        B, L, _, width = here[instruction.operands[0]].outputs[0].shape  # queries, keys and values
        return 2.0 * FLASH_PRODUCTS[kernel[1]] * B * L * L * width
    return 0.0


def is_dot(instruction: Instruction) -> bool:
    return instruction.opcode == "dot" or LIBRARY_DOT in instruction.attributes


def summed_terms(dot: Instruction, here: Computation) -> int:
    left = here[dot.operands[0]].outputs[0].shape
    axes = SUMMED.search(dot.attributes)
    return math.prod(left[int(axis)] for axis in re.findall(r"\d+", axes[1])) if axes else 1


def source_path(instruction: Instruction) -> str:
    named = re.search(r'op_name="([^"]*)"', instruction.attributes)
    return named[1] if named else ""


def makes_random_numbers(instruction: Instruction) -> bool:
    """Whether it makes random numbers: only these are unsigned."""
    return any(a.dtype in ("u32", "u64") for a in instruction.outputs) or instruction.opcode.startswith("rng")


def movement_name(members: list[tuple[Instruction, Computation]]) -> str:
    """Return the name of the part for an operation without arithmetic."""
    if any(makes_random_numbers(i) for i, _ in members):
        return "dropout: random numbers"
    kinds, paths = {i.opcode for i, _ in members}, [source_path(i) for i, _ in members]
    if any(re.search(r"dynamic_(update_)?(index_in_dim|slice)", path) for path in paths):
        return SLICES
    if kinds & {"gather"} and any(re.search(r"/embeddings/|\(_take\)", path) for path in paths):
        return "embeddings"
    return SLICES if kinds & {"dynamic-slice", "dynamic-update-slice"} else COPIES
