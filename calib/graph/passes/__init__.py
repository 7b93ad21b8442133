"""The passes of normalization, a module for each or for a few that belong together; `calib.graph.normalize` lists them."""
