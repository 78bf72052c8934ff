// A simulation that owns MPI and lets some of its ranks train: the solvers compute samples, and the trainers, which form a
// separate Gannet world, learn from them.
//
//   mpirun -np 4 mpi_guest          # 2 solvers, 2 trainers
#include <gannet/gannet.h>
#include <mpi.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <array>
#include <cmath>
#include <cstdio>

namespace {

constexpr int kSteps = 200, kSamples = 64, kTag = 7;

// Stands in for a solver's computation: points on a sine.
void solve(int trainer, int seed) {
  for (int step = 0; step < kSteps; ++step) {
    std::array<float, 2 * kSamples> points;
    for (int i = 0; i < kSamples; ++i) {
      points[i] = static_cast<float>((step * 31 + seed * 17 + i * 7) % 100) / 50 - 1;
      points[kSamples + i] = std::sin(3 * points[i]);
    }
    MPI_Send(points.data(), points.size(), MPI_FLOAT, trainer, kTag, MPI_COMM_WORLD);
  }
}

void train(MPI_Comm trainers, int solver) {
  int rank = 0, size = 0;
  MPI_Comm_rank(trainers, &rank);
  MPI_Comm_size(trainers, &size);
  gannet::init_distributed({.mpi_communicator = MPI_Comm_c2f(trainers)});
  torch::manual_seed(0);
  torch::nn::Sequential model(torch::nn::Linear(1, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
  auto engine = gannet::initialize(model, {.config = R"({"train_micro_batch_size_per_gpu": 64,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.02}}, "zero_optimization": {"stage": 1}})"})
                    .engine;
  for (int step = 0; step < kSteps; ++step) {
    at::Tensor points = at::empty({2, kSamples, 1});
    MPI_Recv(points.data_ptr<float>(), 2 * kSamples, MPI_FLOAT, solver, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    points = points.to(engine->device());
    const at::Tensor loss = at::mse_loss(engine->forward(points[0]), points[1]);
    engine->backward(loss);
    engine->step();
    if (rank == 0 && step % 50 == 49) std::printf("step %d, %d trainers: loss %.4f\n", step + 1, size, loss.item<float>());
  }
  engine.reset();
  gannet::destroy_distributed();  // before MPI_Finalize
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0, rank = 0, size = 0, code = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);  // Gannet calls MPI on a thread of its own
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int half = size / 2;
  if (size % 2 != 0 || size == 0) {
    if (rank == 0) std::fprintf(stderr, "start an even number of processes: mpirun -np 4 %s\n", argv[0]);
    MPI_Finalize();
    return 2;
  }
  const bool trains = rank < half;
  MPI_Comm mine = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, trains, rank, &mine);
  try {
    if (trains)
      train(mine, rank + half);
    else
      solve(rank - half, rank);
  } catch (const gannet::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    code = error.exit_code();
    MPI_Abort(MPI_COMM_WORLD, code);  // otherwise the solvers would wait forever
  }
  MPI_Comm_free(&mine);
  MPI_Finalize();
  return code;
}
