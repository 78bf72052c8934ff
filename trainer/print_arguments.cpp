// Prints docs/training_arguments.md:  build/bin/gannet-training-arguments > docs/training_arguments.md
#include <gannet/training_arguments.h>

#include <iostream>

int main() { std::cout << gannet::training_arguments_markdown(); }
