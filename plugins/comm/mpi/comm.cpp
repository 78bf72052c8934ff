// The Comm over one MPI library. It is built once for each (Open MPI, MPICH): their headers have
// other constants. mpi.cpp, the plugin, opens the one that fits the process.
#include <array>
#include <gannet/sdk_comm.hpp>
#include <map>
#include <mutex>

#include "operations.h"
#include "runtime.h"

namespace gannet_mpi {
namespace {

using gannet::sdk::Collective;
using gannet::sdk::Failure;

std::string in_group(const std::string& name, uint32_t rank, uint32_t size) {
  return " in group '" + name + "' (rank " + std::to_string(rank) + " of " + std::to_string(size) + ")";
}

// The ranks' numbers in MPI_COMM_WORLD, which they tell each other through the store: a program may
// train with some of its processes, in an order of its own.
class WorldNumbers {
 public:
  WorldNumbers(const gannet_store* store, uint32_t rank, uint64_t timeout_ms) : store_(store), timeout_ms_(timeout_ms) {
    if (!store) return;
    int own = 0;
    Runtime::get().run("MPI_Comm_rank", [&] { require(MPI_Comm_rank(MPI_COMM_WORLD, &own), "MPI_Comm_rank"); });
    const std::string text = std::to_string(own);
    ask([&](gannet_error* error) { return store_->set(store_->context, key_of(rank).c_str(), text.data(), text.size(), error); });
  }
  int of(uint32_t rank) {
    const auto known = numbers_.find(rank);
    if (known != numbers_.end()) return known->second;
    const void* bytes = nullptr;
    uint64_t count = 0;
    ask([&](gannet_error* error) { return store_->wait(store_->context, key_of(rank).c_str(), timeout_ms_, error); });
    ask([&](gannet_error* error) { return store_->get(store_->context, key_of(rank).c_str(), &bytes, &count, error); });
    return numbers_[rank] = std::stoi(std::string(static_cast<const char*>(bytes), count));
  }

 private:
  static std::string key_of(uint32_t rank) { return "mpi/rank " + std::to_string(rank); }
  template <class Call>
  static void ask(Call&& call) {
    char text[512] = "";
    gannet_error error{};
    error.struct_size = sizeof(error);
    error.capacity = sizeof(text);
    error.message = text;
    if (const int32_t status = call(&error); status != GANNET_OK) throw Failure(static_cast<gannet_status>(status), text);
  }
  const gannet_store* store_;
  uint64_t timeout_ms_;
  std::map<uint32_t, int> numbers_;
};

class Mpi : public gannet::sdk::CommBase {
 public:
  struct Group {
    ~Group() {
      if (comm == MPI_COMM_NULL) return;
      try {
        Runtime::get().run("MPI_Comm_free", [this] { MPI_Comm_free(&comm); });
      } catch (...) {  // of an aborted Comm: left to the end of the process
      }
    }
    MPI_Comm comm = MPI_COMM_NULL;  // null: a group of one rank
    std::string name;
  };
  struct Work {
    bool wait(uint64_t timeout_ms) { return !pending || pending->wait(timeout_ms); }
    bool is_over() { return !pending || pending->is_over(); }
    std::shared_ptr<Pending> pending;  // null: it is over
  };
  static constexpr std::array<gannet_param_spec, 0> kParams{};

  Mpi(const gannet_host& host, const gannet::sdk::Params& params, const gannet_rendezvous& rendezvous)
      : CommBase(host, params, rendezvous),
        owner_(rendezvous.world_size > 1 ? Runtime::get().new_owner() : 0),
        numbers_(rendezvous.world_size > 1 ? rendezvous.store : nullptr, rendezvous.rank, rendezvous.timeout_ms) {
    if (rendezvous.world_size == 1) return;  // copies, without MPI
    int size = 0;
    Runtime::get().run("MPI_Comm_size", [&] { require(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size"); });
    if (rendezvous.world_size > static_cast<uint32_t>(size))
      throw Failure(GANNET_UNSUPPORTED, "comm plugin 'mpi': this world has " + std::to_string(rendezvous.world_size) +
                                            " ranks, and MPI has started " + std::to_string(size) +
                                            ": start the program with mpirun -n " + std::to_string(rendezvous.world_size));
  }

  std::unique_ptr<Group> make_group(const std::vector<uint32_t>& ranks, uint32_t, const std::string& name) {
    auto group = std::make_unique<Group>();
    group->name = name;
    if (ranks.size() == 1) return group;
    std::vector<int> members;
    for (const uint32_t rank : ranks) members.push_back(numbers_.of(rank));
    Runtime::get().run("MPI_Comm_create_group", [&] {
      MPI_Group world = MPI_GROUP_NULL, chosen = MPI_GROUP_NULL;
      require(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
      require(MPI_Group_incl(world, static_cast<int>(members.size()), members.data(), &chosen), "MPI_Group_incl");
      const int tag = static_cast<int>(std::hash<std::string>()(name) % 32000);  // groups that are made at once differ in name
      require(MPI_Comm_create_group(MPI_COMM_WORLD, chosen, tag, &group->comm), "creating group '" + name + "'");
      MPI_Comm_set_errhandler(group->comm, MPI_ERRORS_RETURN);
      MPI_Group_free(&chosen);
      MPI_Group_free(&world);
    });
    return group;
  }

  std::unique_ptr<Work> start(Group& group, const Collective& c) {
    if (group.comm == MPI_COMM_NULL) {
      gannet::sdk::do_alone(c);
      return std::make_unique<Work>();
    }
    Operation operation = operation_of(c, group.comm);
    count(c);
    std::string doing = gannet::sdk::name_of_collective(c.op);
    if (c.op != GANNET_BARRIER) doing += " of " + std::to_string(c.bytes()) + " bytes";
    return std::make_unique<Work>(Work{Runtime::get().start(owner_, doing + in_group(group.name, c.rank, c.size),
                                                            std::move(operation.issue), std::move(operation.then))});
  }
  void abort() {
    if (owner_ > 0) Runtime::get().abort(owner_);
  }

 private:
  // The bytes that a rank of a collective sends and receives at least.
  void count(const Collective& c) {
    const uint64_t element = c.element_bytes(), others = c.size - 1;
    uint64_t sent = 0, received = 0;
    switch (c.op) {
      case GANNET_ALL_REDUCE:  // a reduce-scatter and a gather
        sent = received = 2 * c.bytes() * others / c.size;
        break;
      case GANNET_BROADCAST:
        (c.rank == c.peer ? sent : received) = c.rank == c.peer ? c.bytes() * others : c.bytes();
        break;
      case GANNET_ALL_GATHER:
        sent = c.bytes() * others;
        received = c.recv_offset(c.size) * element - c.bytes();
        break;
      case GANNET_REDUCE_SCATTER:
        sent = c.send_offset(c.size) * element - c.bytes();
        received = c.bytes() * others;
        break;
      case GANNET_ALL_TO_ALL:
        sent = (c.send_offset(c.size) - c.send_count(c.rank)) * element;
        received = (c.recv_offset(c.size) - c.recv_count(c.rank)) * element;
        break;
      case GANNET_SEND:
        sent = c.bytes();
        break;
      case GANNET_RECV:
        received = c.bytes();
    }
    count_traffic(sent, received);
  }

  const uint64_t owner_;
  WorldNumbers numbers_;
};

}  // namespace
}  // namespace gannet_mpi

extern "C" __attribute__((visibility("default"))) const gannet_comm_api* gannet_mpi_comm() {
  return &gannet::sdk::detail::kCommApi<gannet_mpi::Mpi>;
}
