"""The options of planning: one declaration for `find_strategy` and the command line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass, field, fields
from math import inf
from typing import Any, Literal

from tensoropt.graph.batch_norm import BATCH_NORMS, BatchNorm
from tensoropt.parallel.buckets import COMPRESSIONS, Compression
from tensoropt.planner.fixed.words import fixed_dimensions, parse_fixed
from tensoropt.planner.options.relations import check_relations
from tensoropt.planner.options.values import (
    Check,
    amount,
    ascending,
    count,
    is_count,
    is_number,
    is_shape,
    memory,
    memory_amount,
    name_of,
    plain,
    point_of_frontier,
    positive,
    rule,
    seconds,
    several,
    shapes_by_name,
    text_or_count,
    yes_or_no,
)
from tensoropt.transformations.staged.order_of_passes import SCHEDULES, Schedule

__all__ = ["CommandOption", "PlanningOptions", "command_options", "flag_of"]


def _known_algorithm(_: str, algorithm: str) -> str:
    """Check the name of an algorithm.

    The import is local: the name of the default is known without loading the search.
    """
    if algorithm != "ft":
        from tensoropt.search.solvers import solver

        solver(algorithm)  # raises for an unknown algorithm
    return algorithm


_option = name_of("an option", ("mini_time", "mini_parallelism", "mini_cost", "profiling"))
_batch_norm = name_of("a batch_norm", BATCH_NORMS)
_compression = name_of("a compression", COMPRESSIONS)
_schedule = name_of("a schedule", SCHEDULES)
_shapes = rule(
    "has a shape for each placeholder, a number for each dimension",
    lambda value: isinstance(value, Mapping) and all(map(is_shape, value.values())),
    "give shapes={placeholder: [32, 64]}, or NAME=32,64 on the command line",
)
_fetches = rule(
    "is a list of one or more operators or tensors",
    lambda value: (
        isinstance(value, Sequence | Set) and not isinstance(value, str) and len(value) > 0
    ),
    "give a list such as [train, loss], or leave it out",
)
_yes_no = rule(
    "is True or False, yes or no on the command line", lambda value: value in (True, False)
)
_epsilon = rule(
    "is at least 0",
    lambda value: is_number(value) and 0 <= value < inf,
    "give a share such as 0.01, or leave it out for the exact frontier",
)
_search_seconds = rule(
    "is a number above 0, or None",
    lambda value: value in (None, "auto") or (is_number(value) and value > 0),
    "give seconds such as 60, None for no limit, or 'auto'",
)
_validate = rule(
    "is the number of frontier points to measure besides data parallelism",
    lambda value: is_count(value, 0),
    "give a number such as 3, or 0 to measure nothing",
)
_microbatches = rule(
    "is a whole number from 1, or None",
    is_count,
    "give a number that divides the batch, such as 4",
)
_pipeline = rule(
    "is a whole number of stages from 1, 'auto' or False",
    lambda value: value is False or value == "auto" or is_count(value),
    "give a number of at most as many stages as devices, such as 4",
)


def _declared(
    default: Any,
    check: Check | None = None,
    metavar: str = "",
    parse: Callable[[str], Any] = str,
    *,
    several: bool = False,
) -> Any:
    """Declare an option.

    Args:
        default: the default value. None needs no check.
        check: the check of other values, which returns the value to keep.
        metavar: the value in the help of the command line; empty if only scripts have the option.
        parse: the value of a text on the command line, before its check.
        several: whether the command line may have the option several times.
    """
    metadata = {"check": check, "metavar": metavar, "parse": parse, "several": several}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, eq=False)
class PlanningOptions:
    """Valid arguments of `find_strategy`.

    Attributes:
        option: the aim (TensorOpt, section 4.1). "mini_time": the fastest strategy on all devices
            that fits the memory limit. "mini_parallelism": the fastest strategy on the fewest
            devices that fit. "profiling": the least time per step for each number of devices;
            nothing runs. In addition to the paper, "mini_cost": the fastest strategy on the number
            of devices whose steps cost least among those that meet a deadline.
        batch_size: the global batch: the first dimension of placeholders that leave it unknown.
        shapes: shapes of placeholders with other unknown dimensions.
        fetches: the operators of one training step; by default those of the script's optimizers.
        memory_limit_bytes: memory of one device; by default the cluster's. A plan uses at most
            this memory divided by the cluster's safety factor (1.1 in the paper).
        parallelism: for "profiling" and "mini_cost", the numbers of devices; by default 1, 2, 4,
            ... up to the job's, and the job's. "mini_cost" ignores numbers above the job's.
        memory_limits_bytes: for "profiling", several limits in place of ``memory_limit_bytes``.
        device_hour_cost: for "profiling" and "mini_cost", the price of one device for an hour, in
            any currency; by default the cluster's, if its file has one.
        max_step_seconds: for "mini_cost", the longest predicted step allowed.
        samples: for "mini_cost", the number of samples to process within ``deadline_seconds``. Use
            both in place of ``max_step_seconds``.
        deadline_seconds: for "mini_cost", the time for all ``samples``.
        algorithm: the strategies to consider: "ft" for all of them, "data_parallel", or another
            system's. "ft": by frontier tracking. "data_parallel": data parallelism. "optcnn",
            "tofu" (every tensor split over all devices), "tofu_recursive" (Tofu's own search),
            "mesh_tensorflow": those of other systems (section 5.1). "brute_force": all of them, one
            by one, for graphs of a few operators. All but the first two are in the repository, not
            in the installed package.
        epsilon: for "ft", the gap allowed between the frontier and the exact one: for every
            strategy the frontier has a point of at most 1 + ``epsilon`` times its memory and its
            time. The search ends as soon as this is proven. 0.01 is one per cent. A plan's
            ``within`` is the proven gap.
        search_seconds: for "ft", the time limit of the search; None for no limit. At the limit, as
            at Ctrl-C, the search ends with its best frontier and its proven gap. Every search ends
            by itself eventually, most of them sooner. The first frontier is always completed,
            stages and microbatches are searched until a plan fits, and the computation of costs
            counts only on many devices. "mini_parallelism", "mini_cost" and "profiling" may search
            this long for each number of devices. The search of microbatches, stages, rewritten
            graphs and strategies that keep less may take this long once more, in all; planning with
            its dry runs ends after one and a half times this long. A search that ends by itself
            finds the same frontier on every machine; a note of the plan says if the limit ended it.
            "auto" is 30 seconds, or less: a search also ends when it has taken longer than the rest
            of it can save. The most it can save is the proven gap in each of the job's ``steps``.
            "auto" also skips stages and rewritten graphs that are not demanded, if their search
            would take longer than they can save.
        steps: number of steps of the job, for ``search_seconds="auto"``; None if it is not known,
            which counts as 1,000. ``fit`` of a Keras model passes it.
        save_memory: whether strategies may keep less for the backward pass: a tensor only before or
            only after resharding (section 4.2), or not at all, so that its operator is computed
            again. None, the default, adds these strategies where memory is short. True searches
            them everywhere, which takes longer. False forbids them, also in stages of a
            ``pipeline``; a stage may still recompute as a whole.
        validate: number of frontier points to measure before one is adopted. They and data
            parallelism run a few steps each, in turns, on variables of their own. The candidate
            that is fastest on the slowest rank is returned, with the measurements in its
            ``validation``. A candidate that exceeds the memory limit is replaced by the next point.
        feed_dict: a global batch for the measured steps; missing inputs are generated. Its shapes
            are planned for if neither ``batch_size`` nor ``shapes`` is given.
        batch_norm: the examples whose mean and variance ``tf.nn.fused_batch_norm`` uses in
            training. "global": the whole batch, as on one device, at the price of two collectives
            a layer. "local": each device's own shard, without collectives, as in data parallelism
            with Horovod. With "local", losses depend on the number of devices and on the plan,
            whose notes say so. The mean and variance that the script reads are then averages over
            the devices, by one collective for all layers, so that moving averages agree on all
            devices, see `tensoropt.graph.batch_norm`. With ``microbatches`` or a ``pipeline`` a
            shard is a shard of a microbatch, as if plain TensorFlow accumulated gradients.
        compression: "bf16" rounds gradients of float32 to bfloat16 where an all-reduce takes them
            from machine to machine, which halves their bytes. Sums are float32, and all devices get
            the same bits. Results are no longer those of one device: each gradient has 8
            significant bits. None, the default, rounds nothing.
        microbatches: number of equal parts of the batch. A step computes the gradients of one part
            after another, sums them, and updates variables once, so that it keeps only one part's
            tensors for the backward pass. Losses, updates and fetches are those of the whole batch.
            None, the default, searches 2, 4, ... parts where memory is short, and with stages the
            number of the fastest step. A number demands that many parts; 1 forbids parts. It is an
            error to demand parts of a step that mixes examples other than by a final sum or mean
            (batch normalisation in training with "global" statistics); the error names the
            operator.
        pipeline: number of stages of layers, each on devices of its own; 1 for none, "auto" for all
            numbers. Microbatches pass through the stages one after another, forward and back; see
            the user guide and `tensoropt.pipeline`. Losses, updates and fetches are those of the
            whole batch. None, the default, searches the most promising stages, and branches side by
            side, if no other strategy fits the memory limit, or if a step takes 0.5 ms or more and
            bounds allow stages to be 3 % faster. "auto" searches all numbers of stages and
            microbatches that bounds allow. A number from 2 demands that many stages: all ways to
            make them and to split each over its own devices are searched, and nothing else. False,
            or 1, forbids stages and branches.
        schedule: the order in which microbatches pass the stages of a ``pipeline``. "1f1b" runs
            backward passes as early as possible, which holds fewer activations; "gpipe" runs all
            forward passes first. None searches both, and branches side by side, which have no
            schedule.
        rewrite: whether to search graphs that compute the same result in another way, by proven
            substitutions: for example, two products that share a factor become one product; see
            `tensoropt.rewriting`. None, the default, searches graphs that are estimated to be 3 %
            faster, if the job's ``steps`` can save more than the search takes. True searches all
            graphs that are about as fast as the script's. False forbids rewriting. A rewritten
            graph is chosen if its step is predicted to take at least 3 % less time, or if nothing
            else fits; it may have microbatches or stages and may keep less. Variables, slots,
            checkpoints and fetches stay as in the script; sums are computed in another order.
        point: a point of the frontier: its number, an amount of memory such as "2GiB" for the
            fastest point within it, or "turning-point", where more memory begins to gain little
            time (section 5.2). A number is the position in ``Plan.frontier``, as
            `tensoropt frontier` lists it. The plan is that of this point instead of the option's.
            Nothing is searched if an earlier start with the same options has kept its frontier,
            see the user guide.
        fixed: dimensions of layers that are divided by hand; the rest is searched. For each glob
            pattern of layers' names, as `tensoropt show` has them, the level of the cluster that
            divides each dimension: ``{"decoder/*": {"heads": "device", "batch": "machine"}}``. A
            level is named as in the cluster; "device" is the innermost one, "all" is all of them,
            "device/2" is two parts over the groups of a level, several are a list, and None leaves
            the dimension whole. A dimension has its name in the view ("batch", "columns", "rows",
            "heads", ...), or is a number of the layer's output dimensions. Plans of all kinds keep
            it: in microbatches, in stages and of rewritten graphs.

    Raises:
        OptionError: a value that an option does not take; options that exclude one another.
    """

    option: str = _declared("mini_time", _option, "AIM")
    _: KW_ONLY
    batch_size: int | None = _declared(None, count, "B", int)
    shapes: Mapping[Any, Sequence[int]] | None = _declared(
        None, _shapes, '"NAME=N,N,... ..."', shapes_by_name
    )
    fetches: Sequence[Any] | None = _declared(None, _fetches, "NAME,NAME,...", several(str))
    memory_limit_bytes: int | None = _declared(None, memory_amount, "AMOUNT", memory)
    parallelism: Iterable[int] | None = _declared(None, ascending, "N,N,...", several(int))
    memory_limits_bytes: Iterable[int] | None = _declared(
        None, ascending, "AMOUNT,AMOUNT,...", several(memory)
    )
    device_hour_cost: float | None = _declared(None, positive, "PRICE", float)
    max_step_seconds: float | None = _declared(None, positive, "SECONDS", float)
    samples: float | None = _declared(None, positive, "NUMBER", float)
    deadline_seconds: float | None = _declared(None, positive, "SECONDS", float)
    algorithm: str = _declared("ft", _known_algorithm, "NAME")
    epsilon: float = _declared(0.0, _epsilon, "SHARE", float)
    search_seconds: float | Literal["auto"] | None = _declared(
        "auto", _search_seconds, "SECONDS", seconds
    )
    steps: int | None = _declared(None, amount, "N", int)
    save_memory: bool | None = _declared(None, _yes_no, "yes|no", yes_or_no)
    validate: int = _declared(0, _validate)
    feed_dict: Mapping[Any, Any] | None = _declared(None)
    batch_norm: BatchNorm = _declared("global", _batch_norm, "global|local")  # noqa: RUF009
    compression: Compression | None = _declared(None, _compression, "bf16")  # noqa: RUF009
    microbatches: int | None = _declared(None, _microbatches, "K", int)
    pipeline: bool | int | Literal["auto"] | None = _declared(
        None, _pipeline, "STAGES", text_or_count
    )
    schedule: Schedule | None = _declared(None, _schedule, "1f1b|gpipe")  # noqa: RUF009
    rewrite: bool | None = _declared(None, _yes_no, "yes|no", yes_or_no)
    point: int | str | None = _declared(None, point_of_frontier, "POINT", text_or_count)
    fixed: Mapping[str, Any] | Sequence[Any] | None = _declared(
        None, fixed_dimensions, "PATTERN:DIMENSION=LEVEL", parse_fixed, several=True
    )

    def __post_init__(self) -> None:
        for option in fields(self):
            check, value = option.metadata["check"], getattr(self, option.name)
            if check is not None and (value is not None or option.default is not None):
                object.__setattr__(self, option.name, plain(check(option.name, value)))
        check_relations(self)

    @property
    def is_tracked(self) -> bool:
        """Whether frontier tracking searches, which considers stages, rewriting and saving."""
        return self.algorithm == "ft"

    @property
    def stages(self) -> int | None:
        """The number of stages to search; 1 for no stages, None for all numbers."""
        if self.pipeline is None:
            return None if self.is_tracked else 1
        return None if self.pipeline == "auto" else int(self.pipeline) or 1

    @property
    def demands_stages(self) -> bool:
        """Whether the user wants several stages, or a search of all numbers of stages."""
        return self.pipeline is not None and self.stages != 1


@dataclass(frozen=True, slots=True)
class CommandOption:
    """An option as the command line has it.

    Attributes:
        name: its name in `PlanningOptions`.
        flag: its name on the command line.
        metavar: its value in the help.
        help: the first sentence of its documentation.
        parse: the value of a text.
        check: the check of a value.
        several: whether there may be several values, which the check gets together.
    """

    name: str
    flag: str
    metavar: str
    help: str
    parse: Callable[[str], Any]
    check: Check
    several: bool


def flag_of(name: str) -> str:
    """The name of an option on the command line."""
    return f"--{name.removesuffix('_bytes').replace('_', '-')}"


def command_options() -> tuple[CommandOption, ...]:
    """The options of planning that the command line has."""
    documentation = inspect.getdoc(PlanningOptions) or ""
    options = []
    for option in fields(PlanningOptions):
        if not option.metadata["metavar"]:
            continue
        text = re.search(
            rf"^    {option.name}: ((?:.|\n)*?[^.])\.(?=\s)", documentation, re.MULTILINE
        )
        said = " ".join(text[1].replace("`", "").split()) if text else ""
        flag = flag_of(option.name)
        options.append(CommandOption(option.name, flag, help=said, **option.metadata))
    return tuple(options)
