"""The peak of a program's memory: small programs, counted by hand."""

from __future__ import annotations

from tensoropt.cost.peak.device_program import DeviceProgram, Kernel
from tensoropt.cost.peak.kernel_memory import MOVE, MOVE_TOGETHER
from tensoropt.cost.peak.program_peak import execution_order, program_peak
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import ReshardStep
from tensoropt.tensor_spec import TensorSpec

KB = 1024
ROWS = TensorSpec((16, 16), "float32")  # 1 KB
SCALAR = TensorSpec((), "float32")
GATHERED = TensorSpec((32, 16), "float32")
ALLREDUCE = ReshardStep(
    "allreduce", (0,), Layout(((), ()), (0,), "sum"), Layout(((), ())), reducer="sum"
)
ALLGATHER = ReshardStep("allgather", (0,), Layout(((0,), ())), Layout(((), ())), from_dim=0)


class Builder:
    """A program, kernel by kernel; each gets the number that `add` returns."""

    def __init__(self) -> None:
        self.kernels: list[Kernel] = []

    def add(self, kind: str, *inputs: int, made: TensorSpec = ROWS, **fields: object) -> int:
        name = f"{kind.lower()}{len(self.kernels)}"
        sources = tuple((number, 0) for number in inputs)
        self.kernels.append(Kernel(name, kind, sources, (made,), **fields))  # type: ignore[arg-type]
        return len(self.kernels) - 1

    def program(self, devices: int = 2, **fields: int) -> DeviceProgram:
        return DeviceProgram(tuple(self.kernels), Mesh((devices,)), **fields)

    def transient(self) -> int:
        found = program_peak(self.program())
        return found.bytes - found.resident_bytes


def test_a_kernel_writes_over_what_nobody_else_reads() -> None:
    build = Builder()
    product = build.add("MatMul", build.add("Placeholder"), build.add("Placeholder"))
    exp = build.add("Exp", product)
    build.add("Sum", build.add("Tanh", exp), made=SCALAR)
    assert build.transient() == KB + 4
    build.add("Sin", exp)  # which runs first, and leaves exp's memory to tanh
    assert build.transient() == 2 * KB


def test_what_stays_is_not_written_over() -> None:
    build = Builder()
    fed = build.add("Placeholder")
    build.add("Sum", build.add("Exp", build.add("Identity", fed)), made=SCALAR)
    assert build.transient() == KB + 4


def test_variables_constants_and_what_is_fed_stay() -> None:
    build = Builder()
    build.add("MatMul", build.add("Placeholder"), build.add("VariableV2"))
    build.add("Const", made=SCALAR)
    found = program_peak(build.program(kept_bytes=100))
    assert found.resident_bytes == 2 * KB + 4 + 100
    assert found.bytes == found.resident_bytes + KB
    assert found.at == "matmul2"


def test_a_variable_updated_by_row_is_read_by_copy() -> None:
    for update, copied in (("ResourceSparseApplyMomentum", KB), ("ResourceApplyMomentum", 0)):
        build = Builder()
        variable = build.add("VarHandleOp")
        build.add("Sum", build.add("ReadVariableOp", variable), made=SCALAR)
        build.add(update, variable, made=TensorSpec((0,), "float32"))
        assert build.transient() == copied + 4


def test_a_tensor_goes_after_its_last_reader() -> None:
    build = Builder()
    fed = build.add("Placeholder")
    first = build.add("MatMul", fed, fed)
    second = build.add("MatMul", first, first)
    third = build.add("MatMul", second, second)
    build.add("MatMul", third, third)
    assert build.transient() == 2 * KB


def test_what_is_dear_runs_newest_first() -> None:
    build = Builder()
    fed = build.add("Placeholder")
    one = build.add("Sin", fed)
    two = build.add("Sin", fed)
    three = build.add("Sin", fed)
    build.add("NoOp", after=(one, two, three), made=SCALAR)
    cheap = build.add("Identity", fed)
    assert list(execution_order(build.program())) == [fed, cheap, three, two, one, 4]


def test_every_kernel_runs_once_after_what_it_needs() -> None:
    build = Builder()
    fed = build.add("Placeholder")
    last = fed
    for _ in range(5):
        last = build.add("Mul", build.add("Sin", last), build.add("Reshape", last), after=(fed,))
    program = build.program()
    order = list(execution_order(program))
    assert sorted(order) == list(range(len(program.kernels)))
    for number in order:
        kernel = program.kernels[number]
        for before in [*(source for source, _ in kernel.inputs), *kernel.after]:
            assert order.index(before) < order.index(number)


def test_a_collective_keeps_its_input_while_it_runs() -> None:
    build = Builder()
    product = build.add("MatMul", build.add("Placeholder"), build.add("Placeholder"))
    build.add("PyFunc", product, made=GATHERED, steps=(ALLGATHER,))
    assert build.transient() == 3 * KB


def test_a_collective_s_result_goes_when_the_next_collective_ends() -> None:
    build = Builder()
    fed = build.add("Placeholder")
    first = build.add("PyFunc", fed, made=GATHERED, steps=(ALLGATHER,))
    total = build.add("Sum", first, made=SCALAR)
    filled = build.add("Fill", total)
    # The first result is still there, though the sum was its last reader.
    second = build.add("PyFunc", filled, made=GATHERED, steps=(ALLGATHER,))
    assert build.transient() == 2 * KB + KB + 2 * KB
    build.add("Fill", build.add("Sum", second, made=SCALAR), made=GATHERED)
    assert build.transient() == 2 * KB + KB + 2 * KB


def test_no_kernel_writes_over_a_collective_s_result() -> None:
    build = Builder()
    moved = build.add("PyFunc", build.add("Placeholder"), made=GATHERED, steps=(ALLGATHER,))
    build.add("Exp", moved, made=GATHERED)
    assert build.transient() == 4 * KB


def test_operators_in_c_write_sums_over_what_they_add_up() -> None:
    build = Builder()
    first, second = (build.add("MatMul", build.add("Placeholder")) for _ in range(2))
    build.kernels.append(
        Kernel("sums", MOVE_TOGETHER, ((first, 0), (second, 0)), (ROWS, ROWS), steps=(ALLREDUCE,))
    )
    total = build.add(MOVE, len(build.kernels) - 1, steps=(ALLREDUCE,))
    assert build.transient() == 2 * KB
    build.add(MOVE, total, made=GATHERED, steps=(ALLGATHER,))
    assert build.transient() == 3 * KB


def test_all_that_an_operator_in_c_makes_ready_is_handed_over() -> None:
    for kind, ran in ((MOVE, ["sin", "identity"]), ("MatMul", ["identity", "sin"])):
        build = Builder()
        moved = build.add(kind, build.add("Placeholder"), steps=(ALLREDUCE,))
        build.add("Identity", moved)
        build.add("Sin", moved)
        names = [build.kernels[number].name[:-1] for number in execution_order(build.program())]
        assert names[2:] == ran
