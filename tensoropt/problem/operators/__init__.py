"""What a node costs under each configuration: work, memory, and collectives inside operators."""
