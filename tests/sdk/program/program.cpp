// A program against the installed package: headers, the core library and LibTorch are found.
#include <ATen/ops/ones.h>

#include <gannet/log.h>
#include <gannet/value.h>

int main() {
  const gannet::Value config = gannet::Dict{{"train_batch_size", static_cast<int>(at::ones({2, 4}).numel())}};
  gannet::log_info("from the package: " + config.to_json());
}
