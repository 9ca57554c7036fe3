"""What the graphs that `models.weights.convert.kokoro` makes and the engine have in common."""

PLAN_OUTPUTS = ("durations", "features", "source")
"""Frames of 25 ms a symbol [1, n]; float32 [1, 514, frames]; float32 [1, 22, 120 frames + 1]."""
SILENT_FRAME = 2  # of those that the vocoder gets: between where it was cut and the speech
