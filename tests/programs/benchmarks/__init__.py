"""What is measured beside others. A package, so that tests can hold the README to what it prints."""
