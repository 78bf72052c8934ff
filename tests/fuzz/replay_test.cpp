// Every input that a fuzzer has kept, given to its reader once, in the ordinary build. Without libFuzzer nothing is searched for,
// and without its sanitizers no memory is counted: scripts/test.sh full does both.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#define GANNET_FUZZ_REPLAY
#define LLVMFuzzerTestOneInput read_config
#include "fuzz/fuzz_config.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput read_exported
#include "fuzz/fuzz_exported.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput read_manifest
#include "fuzz/fuzz_manifest.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput read_npy
#include "fuzz/fuzz_npy.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput read_pickle
#include "fuzz/fuzz_pickle.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput read_plugin
#include "fuzz/fuzz_plugin.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput read_safetensors
#include "fuzz/fuzz_safetensors.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput read_zip
#include "fuzz/fuzz_zip.cpp"
#undef LLVMFuzzerTestOneInput

namespace {

struct Reader {
  const char* name;
  int (*read)(const uint8_t* data, size_t size);
  std::vector<std::string> folders;  // below tests/
};
void PrintTo(const Reader& reader, std::ostream* out) { *out << reader.name; }

class Replay : public testing::TestWithParam<Reader> {};

TEST_P(Replay, TakesEveryInputOfItsCorpus) {
  size_t count = 0;
  for (const std::string& folder : GetParam().folders)
    for (const auto& entry : std::filesystem::recursive_directory_iterator(std::string(GANNET_SOURCE_DIR) + "/tests/" + folder)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string bytes((std::istreambuf_iterator<char>(file)), {});
      for (const size_t size : {bytes.size(), bytes.size() / 2})  // and cut
        EXPECT_EQ(GetParam().read(reinterpret_cast<const uint8_t*>(bytes.data()), size), 0) << entry.path();
      ++count;
    }
  EXPECT_GE(count, 2u);
}
INSTANTIATE_TEST_SUITE_P(, Replay,
                         testing::Values(Reader{"config", read_config, {"fuzz/corpus/config", "configs"}},
                                         Reader{"exported", read_exported, {"fuzz/corpus/exported"}},
                                         Reader{"manifest", read_manifest, {"fuzz/corpus/manifest"}},
                                         Reader{"npy", read_npy, {"fuzz/corpus/npy"}},
                                         Reader{"pickle", read_pickle, {"fuzz/corpus/pickle"}},
                                         Reader{"plugin", read_plugin, {"fuzz/corpus/plugin"}},
                                         Reader{"safetensors", read_safetensors, {"fuzz/corpus/safetensors"}},
                                         Reader{"zip", read_zip, {"files/data"}}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
