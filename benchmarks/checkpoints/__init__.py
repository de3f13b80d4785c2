"""The memory that checkpoints take, and the checkpoints that killed jobs leave."""
