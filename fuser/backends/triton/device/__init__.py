"""What a GPU's program is: groups of a plan as operations that the native core enqueues without Python."""
