"""The vocabulary: frozen records, validated where they are made, units in their names."""
