"""What older gradients cost a job in quality, by short runs with the delay of many workers imposed."""
