// Comm plugin "local": a world of one process. Every collective is a copy from send to recv, or
// nothing if they are the same buffer. It is complete when the call returns, and sends nothing over
// a network.
#include <array>
#include <gannet/sdk_comm.hpp>

namespace {

using gannet::sdk::Failure;

class Local : public gannet::sdk::CommBase {
 public:
  struct Group {};
  struct Work {
    bool wait(uint64_t) { return true; }
    bool is_over() { return true; }
  };
  static constexpr std::array<gannet_param_spec, 0> kParams{};

  Local(const gannet_host& host, const gannet::sdk::Params& params, const gannet_rendezvous& rendezvous)
      : CommBase(host, params, rendezvous) {
    if (rendezvous.world_size != 1)
      throw Failure(GANNET_UNSUPPORTED, "comm plugin 'local' serves one process, and this world has " +
                                            std::to_string(rendezvous.world_size) + ": name another one, as 'gloo'");
  }
  std::unique_ptr<Group> make_group(const std::vector<uint32_t>&, uint32_t, const std::string&) {
    return std::make_unique<Group>();
  }
  std::unique_ptr<Work> start(Group&, const gannet::sdk::Collective& collective) {
    gannet::sdk::do_alone(collective);
    return std::make_unique<Work>();
  }
  void abort() {}
  uint32_t sum_dtype(uint32_t) const { return GANNET_FLOAT32; }  // sums over one rank are exact
};

}  // namespace

GANNET_PLUGINS("comm/local@cpu", GANNET_TIER_STABLE,
               gannet::sdk::comm<Local>("local", "cpu", GANNET_TIER_STABLE, "", "0.2.0", "one process: copies, no wire"))
