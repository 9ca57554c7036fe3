"""Model weights: fetched by `python -m models.weights`, found by `WeightStore`."""
