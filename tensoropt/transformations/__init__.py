"""From a step's graph to another graph: rewritten, in microbatches, in stages."""
