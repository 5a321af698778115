"""Looking inside: every artefact of a compilation as numbered files, and the search for a guilty merge."""
