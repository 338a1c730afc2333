"""Judges: a local model gives verdicts on answers and memories, and its own reliability is measured first.

`judges` defines what each judge is asked, `verdicts` asks a language model or a trained NLI model, and `calibration`
compares verdicts with labelled ones and stores the result together with the model it is valid for. Only the last reads
settings and the model manifest. None depends on a runner, a data set or a memory system: what is judged is a mapping of
strings.
"""
