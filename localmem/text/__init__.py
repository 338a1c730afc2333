"""Working on text: how dialogues are written out, cut, parsed and summarised."""
