"""Import a TensorFlow graph: bind unknown shapes, fold constants, replace recorded gradients.

This is the only package under ``graph/`` that imports TensorFlow.
"""

from __future__ import annotations

from tensoropt.graph.from_tensorflow.attributes import (
    GRADIENT_OF,
    OWN_GRADIENT,
    ROWS_ATTRIBUTE,
    STANDS_FOR,
    local_attribute,
    python_attribute,
    synthetic_attributes,
)
from tensoropt.graph.from_tensorflow.backward_reads import backward_reads
from tensoropt.graph.from_tensorflow.binding import (
    FED_OUTPUT,
    bind_shapes,
    fed_operator,
    output_shapes,
)
from tensoropt.graph.from_tensorflow.folding import INITIALISED_TYPES
from tensoropt.graph.from_tensorflow.importer import import_graph
from tensoropt.graph.from_tensorflow.library import (
    called_functions,
    function_closure,
    references,
)
from tensoropt.graph.from_tensorflow.operations import (
    ELEMENT_TYPES,
    PIPELINE_TYPES,
    QUEUE_ACTIONS,
    has_operation,
    needed_operations,
)
from tensoropt.graph.from_tensorflow.recorded import GRADIENT_ATTRIBUTE

__all__ = [
    "ELEMENT_TYPES",
    "FED_OUTPUT",
    "GRADIENT_ATTRIBUTE",
    "GRADIENT_OF",
    "INITIALISED_TYPES",
    "OWN_GRADIENT",
    "PIPELINE_TYPES",
    "QUEUE_ACTIONS",
    "ROWS_ATTRIBUTE",
    "STANDS_FOR",
    "backward_reads",
    "bind_shapes",
    "called_functions",
    "fed_operator",
    "function_closure",
    "has_operation",
    "import_graph",
    "local_attribute",
    "needed_operations",
    "output_shapes",
    "python_attribute",
    "references",
    "synthetic_attributes",
]
