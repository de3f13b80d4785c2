"""Stages without blocks: RaNNC's variant that sums the costs of atomic components (section IV-C).

Components may have tied tables, constants, tensors with several readers, and temporary memory in
common. The sum counts these for each component, as if each were profiled alone. The tensors that a
stage receives follow from the graph.
"""

from __future__ import annotations

import numba
import numpy as np

from reproduction.rannc.searches.rannc import Tables, form_stage
from tensoropt.arrays import Int64Array
from tensoropt.errors import OptionError
from tensoropt.pipeline.atom_costs import AtomCosts
from tensoropt.pipeline.links import Links
from tensoropt.pipeline.sent import crossing
from tensoropt.pipeline.stages.pipeline import Pipeline, PipelineProblem, Stage
from tensoropt.pipeline.stages.points import StagePoints
from tensoropt.pipeline.stages.table import stage_of, stage_rows
from tensoropt.transformations.staged.order_of_passes import Schedule, in_flight

__all__ = ["SummedProfile", "without_blocks"]


def without_blocks(problem: PipelineProblem, schedule: Schedule = "gpipe") -> Pipeline:
    """Algorithm 2 over atomic components; its time grows with the square of their number.

    Args:
        problem: a problem whose blocks are the components and whose profile is a `SummedProfile`.
        schedule: determines how many microbatches a stage holds.

    Raises:
        InfeasibleError: if no stages fit the memory by these sums.
        OptionError: if the profile is not a `SummedProfile`.
    """
    return form_stage(problem, schedule, _solve)


class SummedProfile:
    """The profile of consecutive components as the sum of their profiles.

    Args:
        costs: costs of the components.
        links: links between stages and among replicas.
    """

    def __init__(self, costs: AtomCosts, links: Links) -> None:
        self._costs, self._links = costs, links
        atoms, size = costs.atoms, len(costs.atoms)
        states = {name: costs.state_bytes(name) for name in atoms.states}
        self._gradients = np.zeros(size, dtype=np.int64)
        self._fixed = np.zeros(size, dtype=np.int64)
        received = np.zeros((size, 2), dtype=np.int64)
        for place, atom in enumerate(atoms.atoms):
            own = [states[name] for name in atom.states if name in states]
            self._gradients[place] = sum(gradient for _, gradient in own)
            self._fixed[place] = sum(map(sum, own))
            self._fixed[place] += sum(map(costs.constant_bytes, atom.constants))
        for _, reader, tensor in atoms.edges:
            if tensor is not None:
                bytes_ = costs.growth.tensor_bytes(tensor, costs.growth.examples)
                received[reader] += bytes_, 0 if costs.growth.tensor_grows(tensor) else bytes_
        self._received = received
        self._crossing = crossing(costs, np.arange(size))
        self._known: dict[int, Int64Array] = {}

    def sums(self, examples: int) -> Int64Array:
        """int64[4, components + 1]: sums over the first components for a number of examples:
        forward and backward time, and fixed and saved bytes."""
        if examples not in self._known:
            costs = self._costs
            forward, backward, transient, _ = (each.copy() for each in costs.at(examples))
            for place, atom in enumerate(costs.atoms.atoms):
                for name in atom.constants:
                    time = costs.operator_time(name, examples)
                    forward[place] += time.forward
                    backward[place] += time.backward
            inputs = costs.part(self._received[:, 0], self._received[:, 1], examples)
            saved = costs.saved_at(examples) + inputs
            rows = np.stack([forward, backward, self._fixed + transient, saved])
            self._known[examples] = np.pad(np.cumsum(rows, axis=1), ((0, 0), (1, 0)))
        return self._known[examples]

    def boundaries(self, examples: int) -> Int64Array:
        """int64[2, components + 2, 2]: bytes and numbers of tensors that cross each boundary,
        forward and backward."""
        bytes_ = self._costs.part(self._crossing[..., 0], self._crossing[..., 1], examples)
        return np.stack([bytes_, self._crossing[..., 2]], axis=-1)

    def __call__(
        self, first: int, last: int, devices: int, microbatch: int, copies: int
    ) -> StagePoints | None:
        """The single point of a stage; see `tensoropt.pipeline.stages.points.Profile`."""
        if microbatch < devices:
            return None
        examples = -(-microbatch // devices)
        sums, boundaries = self.sums(examples), self.boundaries(examples)
        forward, backward, fixed, saved = sums[:, last + 1] - sums[:, first]
        gradients = int(self._gradients[first : last + 1].sum())
        return StagePoints.of(
            forward=int(forward),
            backward=int(backward),
            once=self._links.allreduce_nanoseconds(gradients, devices, copies),
            fixed=int(fixed),
            saved=int(saved),
            inputs=int(boundaries[0, first, 0]),
            sent=int(boundaries[0, last + 1, 0]),
            received=int(boundaries[1, first, 0]),
            sent_tensors=int(boundaries[0, last + 1, 1]),
            received_tensors=int(boundaries[1, first, 1]),
        )


def _solve(
    problem: PipelineProblem,
    stages: int,
    machines: int,
    microbatches: int,
    schedule: Schedule,
    _: Tables,
) -> Pipeline | None:
    """`reproduction.rannc.searches.rannc.form_stage_dp` by sums, without a table of all stages."""
    profile = problem.profile
    if not isinstance(profile, SummedProfile):
        raise OptionError(
            "stages without blocks are of components whose costs are summed. Got another profile; "
            "give a SummedProfile."
        )
    copies = problem.machines // machines
    devices = machines * problem.links.machine
    microbatch = problem.batch // copies // microbatches
    if microbatch < 1 or stages > min(problem.blocks, devices):
        return None
    again = stages > 1
    held = [in_flight(schedule, stage, stages, microbatches) for stage in range(stages)]
    came = _form(
        *_tables(problem, profile, devices, microbatch, again),
        np.array(held, dtype=np.int64),
        min(devices, microbatch),
        problem.links.machine,
        problem.memory_limit,
        again,
    )
    block, device = problem.blocks, devices
    if came[stages, block, device, 0] < 0:
        return None
    found: list[Stage] = []
    for stage in range(stages, 0, -1):
        before, device_before = (int(each) for each in came[stage, block, device])
        place = before, block - 1, device - device_before
        points = profile(*place, microbatch, copies)
        assert points is not None, "a stage has as many examples as devices"
        (row,) = stage_rows(problem, points, place[2], again)
        found.append(stage_of(problem, row, place, device_before, held[stage - 1]))
        block, device = before, device_before
    return Pipeline.of(found[::-1], copies, microbatches, schedule)


def _tables(
    problem: PipelineProblem, profile: SummedProfile, devices: int, microbatch: int, again: bool
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """By the number of a stage's devices: sums over components, bytes of inputs, times of sends."""
    sums = np.zeros((devices + 1, 4, problem.blocks + 1), dtype=np.int64)
    inputs = np.zeros((devices + 1, problem.blocks + 1), dtype=np.int64)
    sends = np.zeros((devices + 1, 2, 2, problem.blocks + 1), dtype=np.int64)
    for size in range(1, min(devices, microbatch) + 1):
        examples = -(-microbatch // size)
        sums[size] = profile.sums(examples)
        if again:
            sums[size, 1] += sums[size, 0]
        boundaries = profile.boundaries(examples)[:, : problem.blocks + 1]
        inputs[size] = boundaries[0, :, 0]
        for kind in range(2):
            amounts, places = np.unique(boundaries[kind], axis=0, return_inverse=True)
            for across in range(2):
                times = [
                    problem.links.send_nanoseconds(bytes_, size, bool(across), tensors)
                    for bytes_, tensors in amounts.tolist()
                ]
                sends[size, kind, across] = np.array(times, dtype=np.int64)[places.ravel()]
    return sums, inputs, sends


@numba.njit(cache=True, nogil=True)
def _form(
    sums: Int64Array,
    inputs: Int64Array,
    sends: Int64Array,
    held: Int64Array,
    most_devices: int,
    machine: int,
    memory_limit: int,
    again: bool,
) -> Int64Array:
    """int64[stages + 1, components + 1, devices + 1, 2]: for each state the components and devices
    before its last stage; -1 if no way leads to the state.

    Sums only grow with a stage, so a stage that is too long or too large ends the loop over longer
    stages.
    """
    stages, blocks, devices = held.size, sums.shape[2] - 1, sums.shape[0] - 1
    most = np.iinfo(np.int64).max
    shape = (stages + 1, blocks + 1, devices + 1)
    value = np.full(shape, most, np.int64)
    forward, backward = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    came = np.full((stages + 1, blocks + 1, devices + 1, 2), -1, np.int64)
    value[0, 0, 0] = 0
    for s in range(1, stages + 1):
        for b in range(s, blocks - stages + s + 1):
            for d in range(s, devices - stages + s + 1):
                on = 1 if d % machine == 0 else 0
                for size in range(1, min(d - s + 1, most_devices) + 1):
                    used = d - size
                    back = 1 if used % machine == 0 else 0
                    for earlier in range(b - 1, s - 2, -1):
                        own_forward = sums[size, 0, b] - sums[size, 0, earlier]
                        own_backward = sums[size, 1, b] - sums[size, 1, earlier]
                        if own_forward + own_backward >= value[s, b, d]:
                            break
                        memory = sums[size, 2, b] - sums[size, 2, earlier]
                        saved = sums[size, 3, b] - sums[size, 3, earlier]
                        memory += saved if again else held[s - 1] * saved
                        if memory > memory_limit:
                            break
                        if again and memory + held[s - 1] * inputs[size, earlier] > memory_limit:
                            continue
                        if value[s - 1, earlier, used] == most:
                            continue
                        f = max(forward[s - 1, earlier, used], own_forward + sends[size, 0, on, b])
                        g = max(
                            backward[s - 1, earlier, used],
                            own_backward + sends[size, 1, back, earlier],
                        )
                        if f + g < value[s, b, d]:
                            value[s, b, d] = f + g
                            forward[s, b, d], backward[s, b, d] = f, g
                            came[s, b, d, 0], came[s, b, d, 1] = earlier, used
    return came
