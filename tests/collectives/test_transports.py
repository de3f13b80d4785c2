"""The checks of `tests/mpi/programs`, with all ranks in one process."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import tensorflow as tf

from collectives import Group, GroupError, TransportError
from collectives.operations import tensors
from collectives.operations.kinds.allreduce import Allreduce
from collectives.operations.local import Mask
from collectives.transport.in_process import InProcessTransport

PROGRAMS = Path(__file__).parents[1] / "mpi" / "programs"


def program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, PROGRAMS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def members(count: int) -> list[Group]:
    return [Group(each) for each in InProcessTransport.all_of(count)]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_collectives_on_arrays(count: int) -> None:
    checks = program("collectives_numpy")
    checks.check_all(members(count))
    checks.check_messages(members(count))


def test_collectives_on_a_group_in_another_order() -> None:
    groups = [member.subgroup([2, 0, 1]) for member in members(3)]
    program("collectives_numpy").check_all(sorted(groups, key=lambda group: group.rank))


def test_stages_on_tensors() -> None:
    program("collectives_tensorflow").check_all(members(4))


@pytest.mark.parametrize("reducer", ["sum", "prod"])
def test_every_member_makes_its_part_of_a_mask_of_what_is_masked(reducer: str) -> None:
    """Feed the tensor: with a constant, TensorFlow computes gradients in another order."""
    with tf.Graph().as_default():
        given = tf.compat.v1.placeholder(tf.float32, [2, 3])
        made = [Mask(reducer).apply(given, place, 2, tensors) for place in range(2)]
        assert [list(each.op.inputs) for each in made] == [[given], [given]]
        values = np.arange(6, dtype=np.float32).reshape(2, 3)
        with tf.compat.v1.Session() as session:
            first, second = session.run(made, {given: values})
    np.testing.assert_array_equal(first, values)
    np.testing.assert_array_equal(second, np.full((2, 3), reducer == "prod"))


def test_messages_are_between_two_and_sent_before_they_are_received() -> None:
    first, second = members(2)
    with pytest.raises(TransportError, match="Got rank 1 waiting for rank 0"):
        second.receive((), np.dtype(np.float32), 0)
    with pytest.raises(GroupError, match="Got 0 on position 0"):
        first.send(np.ones(3), 0)


def test_no_rank_of_a_process_can_wait_for_another() -> None:
    first, second = members(2)
    with pytest.raises(TransportError, match=r"rank 0 of the group \(0, 1\) waiting for 1 others"):
        first.allreduce(np.ones(3))
    with pytest.raises(TransportError, match="Got two of rank 0"):
        first.start(Allreduce(), np.ones(3))
    finish = first.start(Allreduce(), np.ones(3)), second.start(Allreduce(), np.ones(3))
    first.wait()
    assert [half().tolist() for half in finish] == [[2, 2, 2]] * 2
