"""Training steps written for eager execution: functions with a gradient tape."""
