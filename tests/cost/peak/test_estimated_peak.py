"""The peak of memory: small steps, counted by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tensoropt.cost.peak.estimated_peak import peak_memory
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.operator import Graph, TensorName
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import plan_reshard
from tensoropt.parallel.strategy import Strategy
from tensoropt.tensor_spec import TensorSpec

KB = 1024
Maker = Callable[..., Graph]


def peak_of(graph: Graph, reads: BackwardReads) -> tuple[int, str]:
    strategy = Strategy(graph, Mesh(()), {}, frozenset())
    found = peak_memory(strategy, reads)
    assert found.resident_bytes == 2 * KB  # x and w
    return found.bytes - found.resident_bytes, found.at


def test_what_no_gradient_reads_is_written_over(chain: Maker) -> None:
    # The ReLU takes the product's buffer. The backward pass has the ReLU's output, which the
    # loss's gradient and its own read, and the gradient by it, over which that by the product
    # goes; then the gradient by w, when the output is gone.
    reads = BackwardReads({"product": (0,), "loss": (0,)}, {"relu": (0,)})
    most, where = peak_of(chain("Relu"), reads)
    assert most == 2 * KB
    assert where.startswith("gradient of")


def test_what_gradients_read_stays(chain: Maker) -> None:
    # exp's and tanh's gradients read their outputs: two tensors and a gradient.
    reads = BackwardReads({"product": (0,), "loss": (0,)}, {"exp": (0,), "tanh": (0,)})
    assert peak_of(chain("Exp", "Tanh"), reads) == (3 * KB, "gradient of loss")
    # The product is read by sin's gradient.
    reads = BackwardReads({"product": (0,), "sin": (0,), "loss": (0,)})
    assert peak_of(chain("Sin"), reads) == (3 * KB, "gradient of loss")


def test_views_take_no_memory(chain: Maker) -> None:
    reads = BackwardReads({"product": (0,), "loss": (0,)})
    assert peak_of(chain("Identity"), reads)[0] == peak_of(chain(), reads)[0]


def test_a_call_is_through_before_what_only_the_next_one_needs(chain: Maker) -> None:
    # Of exp's loss first, then of sin's: there are never both. The product, one of them, and a
    # gradient.
    first, second = chain("Exp"), chain("Sin")
    tag = second["dw"].gradient
    assert tag is not None
    other = replace(tag, call=1, ys=(TensorName("loss_2", 0),))
    later = [second["sin"], replace(second["loss"], name="loss_2")]
    later.append(replace(second["dw"], name="dw_2", gradient=other))
    graph = Graph({each.name: each for each in [*first, *later]})
    reads = BackwardReads(dict.fromkeys(("product", "loss", "sin", "loss_2"), (0,)), {"exp": (0,)})
    assert peak_of(graph, reads)[0] == 3 * KB


def test_branches_go_back_together(chain: Maker) -> None:
    # What exp's and tanh's gradients read, and the gradients by both losses, which come first.
    first, second = chain("Exp"), chain("Tanh")
    tag = first["dw"].gradient
    assert tag is not None
    both = replace(tag, ys=(*tag.ys, TensorName("loss_2", 0)))
    of_both = [second["tanh"], replace(second["loss"], name="loss_2")]
    of_both.append(replace(first["dw"], gradient=both))
    graph = Graph({each.name: each for each in [*first, *of_both]})
    reads = BackwardReads({}, {"exp": (0,), "tanh": (0,)})
    assert peak_of(graph, reads)[0] == 4 * KB


def test_small_products_that_share_weights_have_one_gradient(chain: Maker) -> None:
    # Of two rows: both gradients that arrive, the weights' gradient, and copies of all factors.
    # Apart they would be two gradients of the weights.
    rows = TensorSpec((2, 16), "float32")
    whole = chain()
    x = replace(whole["x"], outputs=(rows,))
    product = replace(whole["product"], input_specs=(rows, whole["w"].outputs[0]), outputs=(rows,))
    loss = replace(whole["loss"], input_specs=(rows,))
    tag = whole["dw"].gradient
    assert tag is not None
    both = replace(tag, ys=(TensorName("loss", 0), TensorName("loss_2", 0)))
    of_both = [x, whole["w"], product, loss, replace(product, name="product_2")]
    of_both.append(replace(loss, name="loss_2", inputs=(TensorName("product_2", 0),)))
    of_both.append(replace(whole["dw"], gradient=both))
    graph = Graph({each.name: each for each in of_both})
    reads = BackwardReads(dict.fromkeys(("product", "product_2", "loss", "loss_2"), (0,)))
    found = peak_memory(Strategy(graph, Mesh(()), {}, frozenset()), reads)
    assert found.bytes - found.resident_bytes == 2 * rows.bytes + KB + 4 * rows.bytes


def test_split_tensors_take_their_pieces_and_copies(chain: Maker) -> None:
    graph = chain("Exp")
    mesh = Mesh((2,))
    reads = BackwardReads({"product": (0,), "loss": (0,)}, {"exp": (0,)})
    split = {"product": Configuration(((0,), (), ())), "exp": Configuration(((0,), ()))}
    strategy = Strategy(graph, mesh, split, frozenset({"x"}))
    half = KB // 2
    assert peak_memory(strategy, reads).resident_bytes == half + KB  # rows of x, all of w

    def steps(shape: object, dtype: str, source: Layout, target: Layout) -> object:
        if source == target:
            return ()
        return plan_reshard(
            mesh, (16, 16), 4, source, target, lambda kind, axes, bytes_: 1 + bytes_
        )

    # The loss is computed whole: at its gradient there are exp's rows, the copy that the loss
    # reads, and the gradient by that.
    found = peak_memory(strategy, reads, steps)  # type: ignore[arg-type]
    assert found.bytes - found.resident_bytes == half + 2 * KB
    assert found.at == "gradient of loss"


def test_what_is_computed_again_is_there_when_it_is_read(chain: Maker) -> None:
    # Product, sine, cosine and tangent are read, beside a gradient. Without the sine there are
    # four; so there are at the cosine's gradient, which reads the sine computed again.
    graph = chain("Sin", "Cos", "Tan")
    reads = BackwardReads(dict.fromkeys(("product", "sin", "cos", "tan", "loss"), (0,)))
    assert peak_of(graph, reads)[0] == 5 * KB
    planned = {"sin": Configuration(((), ()), "recomputed")}
    found = peak_memory(Strategy(graph, Mesh(()), planned, frozenset()), reads)
    assert found.bytes - found.resident_bytes == 4 * KB


def test_what_is_resharded_again_is_not_there_between(chain: Maker) -> None:
    # Weights in pieces, gathered for the product: the copy goes, and comes for the gradient by x.
    graph, mesh = chain("Exp"), Mesh((2,))
    reads = BackwardReads({"product": (0, 1), "loss": (0,)}, {"exp": (0,)})
    batch = {"product": Configuration(((0,), (), ())), "exp": Configuration(((0,), ()))}
    peaks = {}
    for kept in ("both", "before"):
        planned = {**batch, "w": Configuration(((0,), ()), kept), "dw": Configuration(((0,), ()))}
        strategy = Strategy(graph, mesh, planned, frozenset({"x"}))
        found = peak_memory(strategy, reads)
        peaks[kept] = found.bytes - found.resident_bytes
        assert found.resident_bytes == KB
    # Whole weights, rows of the exponential, and at the loss, computed whole, those and a gradient.
    assert peaks["both"] == KB + KB // 2 + 2 * KB
    assert peaks["before"] == KB // 2 + 2 * KB


@pytest.mark.parametrize("kinds", [(), ("Relu",), ("Exp", "Tanh", "Sin")])
def test_more_reads_never_take_less(chain: Maker, kinds: tuple[str, ...]) -> None:
    graph = chain(*kinds)
    names = [kind.lower() for kind in kinds]
    none = BackwardReads()
    everything = BackwardReads(
        dict.fromkeys(("product", "loss", *names), (0,)), dict.fromkeys(names, (0,))
    )
    assert peak_of(graph, none)[0] <= peak_of(graph, everything)[0]
