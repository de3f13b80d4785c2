"""The TensorFlow session of the ranks that this process emits."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["RankSession"]

_FOLDED_BYTES = 1 << 12


class RankSession:
    """A session that opens at its first use, so that a script can configure it until then.

    Args:
        graph: the graph that it runs.
        config: the script's configuration.
        is_stateful: whether the graph's collectives are operators with state.
        room_bytes: bytes that the CPU's allocator reserves before anything else; see `_reserve`.

    Attributes:
        graph: see above.
    """

    def __init__(
        self,
        graph: tf.Graph,
        config: tf.compat.v1.ConfigProto,
        is_stateful: bool,
        room_bytes: int = 0,
    ) -> None:
        self.graph = graph
        self._is_stateful = is_stateful
        self._room_bytes = room_bytes
        self._config = _as_emitted(config, is_stateful)
        self._session: tf.compat.v1.Session | None = None

    @property
    def opened(self) -> tf.compat.v1.Session:
        """TensorFlow's session."""
        if self._session is None:
            if self._room_bytes:
                _reserve(self._room_bytes, self._config)
            self._session = tf.compat.v1.Session(graph=self.graph, config=self._config)
        return self._session

    def configure(self, config: tf.compat.v1.ConfigProto) -> bool:
        """Configure it otherwise, which it is only if it is not open.

        Returns:
            Whether it is configured so.
        """
        wanted = _as_emitted(config, self._is_stateful)
        if self._session is None:
            self._config = wanted
        return bool(self._config == wanted)

    def close(self) -> None:
        """Free the session and its variables."""
        if self._session is not None:
            self._session.close()


def _reserve(bytes_: int, config: tf.compat.v1.ConfigProto) -> None:
    """Let the CPU's allocator have one region for so many bytes, of which nothing is written yet.

    Left alone it gets regions of 1, 2, 4, ... MiB. Where one ends, a tensor is given all that is
    left of it, up to twice what it needs, and a variable keeps that for good: of four ranks' 14 to
    17.5 MiB of variables that was up to 1.5 MiB.
    """
    with tf.Graph().as_default() as graph, tf.device("/CPU:0"):
        room = tf.raw_ops.Empty(shape=[bytes_], dtype=tf.uint8, init=False)
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            session.run(room.op)


def _as_emitted(config: tf.compat.v1.ConfigProto, is_stateful: bool) -> tf.compat.v1.ConfigProto:
    """A session configuration that leaves the emitted graph as it is.

    TensorFlow's graph optimizers merge equal operators and drop control dependencies on reads of
    variables. Where several ranks live in one graph, a rank may so lose its own forward operator
    to another's equal one, and its update then runs beside its own read: gradients of some
    strategies were wrong by a few per cent in a third of the runs, from one and the same optimized
    graph. Nor do the optimizers pay there: an LSTM's first steps on four ranks in one process took
    22 s instead of 0.5 s, later ones no less time. One rank alone has not shown a gain, either, nor
    has it by the pass that fuses kernels (remapping) alone: the processor time of six models' steps
    differed by a few per cent, to one side in one run and to the other in the next.
    Where collectives are not stateful, nothing at all is merged or computed ahead of time.
    """
    own = tf.compat.v1.ConfigProto()
    own.CopyFrom(config)
    own.graph_options.rewrite_options.disable_meta_optimizer = True
    # Folded zeros stay for good beside the variable that they initialise: slots took twice.
    options = own.graph_options.optimizer_options
    options.max_folded_constant_in_bytes = _FOLDED_BYTES
    if not is_stateful:
        options.opt_level = options.L0
    return own
