#include "tape.h"

#include <cmath>

namespace soliton::cuda {
namespace {

class Stream {
  public:
    Stream() {
        check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
    }
    ~Stream() { cudaStreamDestroy(stream_); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    cudaStream_t get() const { return stream_; }

  private:
    cudaStream_t stream_ = nullptr;
};

class Event {
  public:
    Event() { check(cudaEventCreate(&event_), "creating an event"); }
    ~Event() { cudaEventDestroy(event_); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

    cudaEvent_t get() const { return event_; }

  private:
    cudaEvent_t event_ = nullptr;
};

}  // namespace

void check(cudaError_t error, const char* what) {
    if (error != cudaSuccess) {
        throw CudaError(what, error);
    }
}

cudaError_t Tape::launch(size_t i, Pass pass) const {
    pass.overlaps = i > 0 && pass.knobs.overlap;
    return steps_[i].launch(steps_[i].args, pass);
}

void Tape::run(const Pass& pass) const {
    for (size_t i = 0; i < size(); ++i) {
        check(launch(i, pass), name(i));
    }
}

void Tape::replay(const Pass& pass) {
    const Key key = key_of(pass);
    const auto graph = graphs_.find(key);
    if (graph != graphs_.end()) {
        check(cudaGraphLaunch(graph->second.get(), pass.stream), "launching the graph of all ops");
        return;
    }
    run(pass);
    graphs_.emplace(key, capture(pass));
}

void Tape::prepare(const Pass& pass) {
    const Key key = key_of(pass);
    if (!graphs_.contains(key)) {
        graphs_.emplace(key, capture(pass));
    }
}

Tape::Key Tape::key_of(const Pass& pass) {
    return {pass.state, pass.n_rows, pass.max_length, pass.knobs};
}

Tape::Graph Tape::capture(Pass pass) const {
    // On a new stream, because the default stream cannot be captured.
    const Stream stream;
    pass.stream = stream.get();
    check(cudaStreamBeginCapture(pass.stream, cudaStreamCaptureModeThreadLocal),
          "beginning a graph capture");
    const char* failed = "ending the graph capture";
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; i < size() && error == cudaSuccess; ++i) {
        error = launch(i, pass);
        if (error != cudaSuccess) {
            failed = name(i);
        }
    }
    cudaGraph_t graph = nullptr;
    const cudaError_t end_error = cudaStreamEndCapture(pass.stream, &graph);
    if (error == cudaSuccess) {
        error = end_error;
    }
    cudaGraphExec_t executable = nullptr;
    if (error == cudaSuccess) {
        failed = "creating the graph of all ops";
        error = cudaGraphInstantiate(&executable, graph, 0);
    }
    if (graph != nullptr) {
        cudaGraphDestroy(graph);
    }
    check(error, failed);
    return Graph(executable);
}

void Tape::profile(const Pass& pass, int64_t* ns) const {
    const std::vector<Event> ends(size() + 1);
    // Keeps the device busy while the launches to be timed are queued.
    run(pass);
    check(cudaEventRecord(ends[0].get(), pass.stream), "recording an event");
    for (size_t i = 0; i < size(); ++i) {
        check(launch(i, pass), name(i));
        check(cudaEventRecord(ends[i + 1].get(), pass.stream), "recording an event");
    }
    check(cudaEventSynchronize(ends[size()].get()), "running all ops");
    for (size_t i = 0; i < size(); ++i) {
        float ms = 0;
        check(cudaEventElapsedTime(&ms, ends[i].get(), ends[i + 1].get()), name(i));
        ns[i] = std::lround(double{ms} * 1e6);
    }
}

}  // namespace soliton::cuda
