"""PURE: split, split state, budget, planner, offset codec. No I/O, no clock."""
