// "plugins": {"trusted": ...} in a run: every plugin that the engine opens, and the Comm that the program has opened before it.
#include <gannet/distributed.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "models.h"
#include "plugin/trust.h"

namespace gannet {
namespace {

using testing::HasSubstr;

const std::string kOurs = GANNET_BINARY_DIR "/lib/gannet/gannet_";

struct Trusted {
  Trusted() {
    std::string text = (std::filesystem::temp_directory_path() / "gannet-trusted-XXXXXX").string();
    if (!mkdtemp(text.data())) ADD_FAILURE() << "no temporary folder";
    folder = text;
    plugin::TrustList::read_or_empty(list()).write();
  }
  ~Trusted() { std::filesystem::remove_all(folder); }
  std::string list() const { return (folder / "list").string(); }
  void add(const std::string& plugin) const {
    const std::string file = kOurs + plugin + ".so";
    std::ifstream stream(file, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
    plugin::TrustList known = plugin::TrustList::read(list());
    known.add(plugin::sha256(bytes), file);
    known.write();
  }
  // The message of initialize.
  std::string initialize() const {
    try {
      gannet::initialize(test::make_net(), {.config = test::config_with({{"plugins", Dict{{"trusted", list()}}}})});
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }
  std::filesystem::path folder;
};

TEST(TrustedPlugins, EveryPluginOfARunMustBeListed) {
  const Trusted trusted;
  for (const char* plugin : {"accelerator_cpu", "comm_local", "optimizer_adam"}) {
    EXPECT_THAT(trusted.initialize(), HasSubstr(kOurs + plugin + ".so is not trusted"));
    trusted.add(plugin);
  }
  EXPECT_EQ(trusted.initialize(), "");
}

// The program's own call opens the Comm before there is a config.
TEST(TrustedPlugins, AWorldThatTheProgramHasMadeIsJudgedToo) {
  init_distributed();
  const Trusted trusted;
  trusted.add("accelerator_cpu");
  trusted.add("optimizer_adam");
  EXPECT_THAT(trusted.initialize(), HasSubstr(kOurs + "comm_local.so is not trusted"));
}

}  // namespace
}  // namespace gannet
