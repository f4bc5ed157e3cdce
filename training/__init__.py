"""Training: recipes, starts, objectives, batches, and the trainer that runs them."""
