// A job that saves, for tests that make its calls fail or kill it:
//
//   saving_child FOLDER TAG FIRST LAST NUMEL   saves steps FIRST to LAST (each step's number in every element), a line after each
//
// TAG may hold a '%', which becomes the step. Exits 3 after "error <code>: <message>".
#include <ATen/ATen.h>
#include <gannet/error.h>

#include <cstdio>
#include <cstdlib>

#include "checkpoint/checkpoint.h"

int main(int argc, char** argv) try {
  if (argc != 6) return 2;
  const std::string pattern = argv[2];
  const int64_t first = std::atoll(argv[3]), last = std::atoll(argv[4]), numel = std::atoll(argv[5]);
  gannet::checkpoint::Saver saver(argv[1], {});
  for (int64_t step = first; step <= last; ++step) {
    const size_t place = pattern.find('%');
    gannet::checkpoint::Content content;
    content.tag =
        place == std::string::npos ? pattern : pattern.substr(0, place) + std::to_string(step) + pattern.substr(place + 1);
    content.slices = {{"w", {numel}, 0, at::full({numel}, static_cast<double>(step), at::kFloat)}};
    content.document = {{"global_steps", step}};
    saver.save(content, {.keep = 2});
    std::printf("saved %lld\n", static_cast<long long>(step));
    std::fflush(stdout);
  }
  return 0;
} catch (const gannet::Error& error) {
  std::printf("error %s: %s\n", gannet::to_string(error.code()), error.what());
  return 3;
}
