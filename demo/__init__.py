"""The main job on real matrices: `make demo`. Not part of the wheel."""
