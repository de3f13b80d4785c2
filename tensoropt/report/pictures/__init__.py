"""Pictures of a plan's view, drawn with Matplotlib, which is imported where the first is drawn."""
