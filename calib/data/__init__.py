"""Data: recipes, where samples come from, which are chosen, and the sets that are written."""
