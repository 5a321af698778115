"""What is known of values: facts that passes ask for."""
