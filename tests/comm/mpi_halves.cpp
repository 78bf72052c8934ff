// A program that owns MPI: it splits its world in two, trains a model in each half, computes with all ranks, trains again
// with all of them, and finalizes. mpi_test.py runs it. An argument names what else it does:
//
//   mpirun -n 4 mpi_halves [gloo | single | null | absent RANK]
#include <gannet/gannet.h>
#include <mpi.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

namespace {

// The sum of the weights after some steps in which every rank has other data.
double train(MPI_Comm comm, const std::string& communication, int stage, double timeout = 60) {
  gannet::DistributedOptions options;
  options.mpi_communicator = MPI_Comm_c2f(comm);
  if (!communication.empty()) options.comm = communication;
  options.timeout_seconds = timeout;
  const auto world = gannet::init_distributed(options);
  if (world->rank() == 0) std::printf("%s\n", world->discovered().c_str());
  torch::manual_seed(0);
  torch::nn::Linear model(8, 4);
  auto engine = gannet::initialize(model, {.config = R"({"train_micro_batch_size_per_gpu": 4,
      "optimizer": {"type": "AdamW", "params": {"lr": 0.02}}, "zero_optimization": {"stage": )" +
                                                     std::to_string(stage) + "}}"})
                    .engine;
  if (world->rank() == 0) std::printf("%s\n", engine->plugin_table().c_str());
  for (int step = 0; step < 5; ++step) {
    const at::Tensor input = at::arange(32).reshape({4, 8}).mul(0.01 * (world->rank() + 1 + step));
    engine->backward(engine->forward(input).square().mean());
    engine->step();
  }
  double sum = 0;
  for (const at::Tensor& weights : model->parameters()) sum += weights.sum().item<double>();
  engine.reset();
  gannet::destroy_distributed();
  return sum;
}

int run(const std::string& mode, int absent) {
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm half = MPI_COMM_NULL;
  // In each half the ranks are numbered from the last to the first.
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  if (mode == "absent") {  // one rank never calls init_distributed
    if (rank != absent) train(half, "", 1, 3);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  if (rank == 0 && mode.empty()) train(MPI_COMM_SELF, "", 0);  // this rank has made one world more than the others
  const double own = train(mode == "null" ? MPI_COMM_NULL : half, mode == "gloo" ? "gloo" : "", 1);
  int in_half = 0;
  MPI_Comm_size(half, &in_half);
  double total = 0;
  MPI_Allreduce(&own, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  const double everyone = train(MPI_COMM_WORLD, mode == "gloo" ? "gloo" : "", 2);
  if (rank == 0) std::printf("halves of %d: %.9f, all of %d: %.9f\n", in_half, total / size, size, everyone);
  MPI_Comm_free(&half);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const int level = mode == "single" ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE;
  int provided = 0, code = 0;
  MPI_Init_thread(&argc, &argv, level, &provided);
  try {
    code = run(mode, argc > 2 ? std::stoi(argv[2]) : -1);
  } catch (const gannet::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::this_thread::sleep_for(std::chrono::seconds(1));  // mpirun may lose what was printed just before
    MPI_Abort(MPI_COMM_WORLD, error.exit_code());
  }
  MPI_Finalize();
  std::printf("finalized\n");
  return code;
}
