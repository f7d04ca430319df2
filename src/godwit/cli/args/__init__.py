"""What a command line says, read and checked."""
