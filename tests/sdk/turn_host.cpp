// A host in one unit, to be compiled against a header in which some structs are longer: the loader, the objects of optimizers and
// schedules, and the kit's engine. It prints what each plugin of the given files does (probe.h), a line each.
//
// Every source that looks into a struct of gannet/abi.h is included here; turns_test.py links the
// others, which are the same for any header, and checks that they name none.
#include "plugin/ends.cpp"
#include "plugin/handshake.cpp"
#include "plugin/inside.cpp"
#include "plugin/note.cpp"
#define refuse refuse_in_open
#include "plugin/open.cpp"
#undef refuse
#include "plugin/params.cpp"
#define refuse refuse_in_schema
#include "plugin/schema.cpp"
#undef refuse
#include "interfaces/host.cpp"
#include "interfaces/optimizer.cpp"
#include "interfaces/optimizer_description.cpp"
#include "interfaces/optimizer_watch.cpp"
#include "interfaces/scheduler.cpp"
#include "kit/optimizer/engine.cpp"
#include "kit/optimizer/extents.cpp"
#include "kit/optimizer/piece_memory.cpp"
#include "kit/optimizer/simulated_calls.cpp"
#include "kit/optimizer/simulated_results.cpp"
#include "kit/ranks.cpp"
#include "plugin/status.cpp"
#include "probe.cpp"

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string file = argv[i], name = file.substr(file.rfind('/') + 1);
    try {
      for (const gannet::plugin::Plugin* plugin : gannet::sdk_tests::open_file(file))
        std::printf("%s %s\n", name.c_str(), gannet::sdk_tests::probe(*plugin).c_str());
    } catch (const gannet::Error& error) {
      std::printf("%s FAILED %s\n", name.c_str(), error.message().c_str());
    } catch (const gannet::kit::CheckFailure& failed) {
      std::printf("%s FAILED %s, %s\n", name.c_str(), failed.found.c_str(), failed.where.c_str());
    }
    std::fflush(stdout);
  }
}
