"""What users look at: one status model (pure) and its views."""
