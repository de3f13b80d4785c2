"""What other divisions of a layer would cost: `Plan.explain`, `tensoropt plan --explain`.

Each division is searched as a whole plan with the layer fixed to it, while the time lasts. Other
divisions are estimated; see `tensoropt.planner.explain.explanation.Alternative`.
"""
