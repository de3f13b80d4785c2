"""Unity's tools: how substitutions are found, proven and covered; strategies in its notation."""
