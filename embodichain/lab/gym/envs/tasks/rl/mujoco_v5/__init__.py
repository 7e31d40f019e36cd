"""Gymnasium's MuJoCo tasks, version 5, on our physics. Importing this package registers them."""
