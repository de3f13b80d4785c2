"""Pipeline stages, found as RaNNC finds them: atomic components, blocks of these, stages of blocks.

Tanaka et al., "Automatic graph partitioning for very large-scale deep learning" (IPDPS 2021).
"""
