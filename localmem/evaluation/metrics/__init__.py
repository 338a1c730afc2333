"""Measures: functions of texts, ids and numbers. They do not depend on a data set or a memory system."""
