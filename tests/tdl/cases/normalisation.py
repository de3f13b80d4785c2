"""Cases: batch normalisation in training and with given statistics."""

from __future__ import annotations

import numpy as np
from tdl_cases.values import Row, alike, positive, real

NONE = np.zeros(0, np.float32)
TRAINING = [real(6, 6, 2, 6), positive(6), real(6), NONE, NONE]
GIVEN = [*TRAINING[:3], real(6), positive(6)]
AVERAGED = {"exponential_avg_factor": 0.5}

CASES: dict[str, list[Row]] = {
    **alike(
        ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"),
        (TRAINING, {"is_training": True}, "c"),
        (GIVEN, {"is_training": False}, "b y x c"),
        (GIVEN, {"is_training": True, **AVERAGED}, "c"),
        ([real(6, 6, 2, 2), *GIVEN[1:]], {"is_training": False, "data_format": "NCHW"}, "b c y x"),
    ),
    **alike(
        ("FusedBatchNormGrad", "FusedBatchNormGradV2"),
        ([real(6, 6, 2, 6), *GIVEN[:2], *GIVEN[3:]], {"is_training": True}, "c"),
    ),
    "FusedBatchNormGradV3": [
        ([real(6, 6, 2, 6), *GIVEN[:2], *GIVEN[3:], NONE], {"is_training": True}, "c")
    ],
}
