"""Pipeline stages, found as RaNNC finds them: components become blocks, and blocks become stages.

Tanaka et al., "Automatic graph partitioning for very large-scale deep learning" (IPDPS 2021).
"""
