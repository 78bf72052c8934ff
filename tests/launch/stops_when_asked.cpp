// Steps of some milliseconds until a stop is asked for on any rank; then "saves" and ends with kStoppedExitCode.
//   stops_when_asked FOLDER SECONDS_TO_SAVE BYTES_OF_OUTPUT_A_STEP
#include <gannet/distributed.h>
#include <gannet/error.h>
#include <gannet/stop.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <thread>

int main(int argc, char** argv) try {
  const std::string folder = argc > 1 ? argv[1] : ".";
  const double seconds_to_save = argc > 2 ? std::atof(argv[2]) : 0;
  const std::string output(argc > 3 ? std::strtoul(argv[3], nullptr, 10) : 0, 'x');
  gannet::StopSignals stop;
  auto world = gannet::init_distributed();
  const std::string rank = std::to_string(world->rank());
  for (int step = 1; step < 3000; ++step) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (step == 1) std::ofstream(folder + "/ready" + rank) << getpid() << '\n' << std::flush;
    if (!output.empty()) std::cout << output << std::endl;
    if (!stop.requested_on_any(*world)) continue;
    std::ofstream(folder + "/saving" + rank) << getpid() << '\n' << std::flush;
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds_to_save));
    std::ofstream(folder + "/saved" + rank) << step << '\n' << std::flush;
    std::cout << "saved at step " << step << ", own signal " << stop.signal() << std::endl;
    world.reset();
    gannet::destroy_distributed();
    return gannet::kStoppedExitCode;
  }
  return 1;
} catch (const gannet::Error& error) {
  std::cerr << error.what() << std::endl;
  return error.exit_code();
}
