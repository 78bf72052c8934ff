/// The processes that train together.
///
///   auto world = gannet::init_distributed();            // reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT
///   if (world->rank() == 0) std::cout << world->size() << " ranks, " << world->discovered() << '\n';
///   auto half = world->subset({0, 1});                  // called by all ranks; null on those that are not members
///
/// gannet::initialize calls init_distributed itself if the program has not. Without those
/// variables, the process is a world of size 1. The first call makes the world; later calls return
/// the same one.
#pragma once

#include <gannet/value.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gannet {

class Config;
namespace control {
struct Links;
class World;
}  // namespace control

struct DistributedOptions {
  /// Name of a Comm plugin: "gloo", "nccl". A plugin for device memory is opened by the first
  /// engine that trains on such a device. "auto": the best one for the number of processes; an
  /// engine on a device also opens the plugin for that device.
  std::string comm = "auto";
  Dict comm_params = {};  ///< the plugin's own parameters, as the config's "comm": {"params": {...}}
  /// The Comm plugin for numbers and strings in host memory, as the config's "comm": {"host":
  /// "gloo"}. It must serve host memory. "auto": the plugin of `comm` if it serves host memory,
  /// else gloo.
  std::string host_comm = "auto";
  /// For the rendezvous and each collective; default 600, or DEEPSPEED_TIMEOUT minutes.
  std::optional<double> timeout_seconds = {};
  std::optional<double> deadline_seconds = {};    ///< how long a call may wait for a late rank; default: timeout_seconds
  std::string init_method = "";                   ///< "env://" (default) or "tcp://host:port"
  std::optional<int> rank = {}, world_size = {};  ///< override the values of the environment
  /// A communicator of the program's own MPI library, by MPI_Comm_c2f(comm): its ranks are the world's,
  /// with no variables and no address. All of them call init_distributed. `comm` "auto" is then "mpi",
  /// which makes its own duplicate; with another Comm, "gloo", MPI only tells the ranks where to meet.
  /// MPI_Init_thread must have given MPI_THREAD_MULTIPLE; MPI_Finalize stays the program's, after
  /// destroy_distributed.
  ///
  ///   MPI_Comm half;  MPI_Comm_split(MPI_COMM_WORLD, color, rank, &half);
  ///   auto world = gannet::init_distributed({.mpi_communicator = MPI_Comm_c2f(half)});
  std::optional<int> mpi_communicator = {};
  std::vector<std::string> plugin_paths = {};     ///< as in the config's "plugins": {"path": [...]}
  std::vector<std::string> plugins_allowed = {};  ///< as in the config's "plugins": {"allow": [...]}
  std::string plugins_trusted = "";  ///< as in the config's "plugins": {"trusted": ...}: "true", a path, or "" for any
};

class ProcessGroup {
 public:
  uint32_t rank() const;  ///< rank in this group
  uint32_t size() const;
  uint32_t local_rank() const;     ///< rank on this machine; it selects the device
  std::string discovered() const;  ///< where rank and size came from: "RANK and WORLD_SIZE of the environment"
  void barrier();
  /// Returns every rank's bytes, indexed by rank; their sizes may differ. Every rank of the group
  /// calls it. EngineBase::gather() does the same along the data axis only.
  std::vector<std::string> gather(const std::string& bytes);
  /// Reports to the group that this rank has left `call`, such as "train()", by an exception with
  /// message `error`, which the program may catch. A rank that then waits for this one, or makes
  /// its next collective call without having left as well, gets Error(kPeerLost) with this rank and
  /// `error` within seconds, and so do all others. If all ranks leave, none gets an error. The
  /// Trainer and generate() call it.
  void report_failure(const std::string& call, const std::string& error) noexcept;
  /// Makes a group from these ranks of this group, in this order. All ranks of this group must call
  /// it; those that are not in `ranks` get null. Throws Error(kArgument) on a rank that is not in
  /// this group, or that is named twice.
  std::shared_ptr<ProcessGroup> subset(const std::vector<uint32_t>& ranks);

  ProcessGroup(std::shared_ptr<control::World> world, std::unique_ptr<control::Links> links);
  ProcessGroup(const ProcessGroup&) = delete;
  ~ProcessGroup();
  const std::shared_ptr<control::World>& world() const { return world_; }
  control::Links& links() const;  ///< for use by the core

 private:
  std::shared_ptr<control::World> world_;
  std::unique_ptr<control::Links> links_;  // null: the world's
  std::string name_ = "world";
  uint32_t subsets_ = 0;
};

/// Throws Error(kConfig) if variables contradict one another, Error(kTimeout) if some ranks never
/// arrive (missing ranks are logged every 10 s), Error(kUnavailable) if the port is in use by
/// another program.
std::shared_ptr<ProcessGroup> init_distributed(const DistributedOptions& options = {});

/// Whether init_distributed was called, by the program or by initialize.
bool is_distributed_initialized();

/// Destroys the world that init_distributed made; all its engines must already be destroyed.
void destroy_distributed();

}  // namespace gannet
