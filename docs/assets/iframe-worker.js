// Lets the search run in pages that are opened from disk. There a browser starts no worker, so this class runs the
// worker's script in a hidden frame. The theme's plugin `offline` looks for a script of this name, and would take one from
// elsewhere without it.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.srcdoc = "<!doctype html>"
      this.loaded = new Promise(resolve => {
        this.frame.addEventListener("load", () => {
          const inside = this.frame.contentWindow
          inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
          const script = inside.document.createElement("script")
          script.src = new URL(address, location.href).href
          script.addEventListener("load", () => resolve(inside))
          inside.document.body.append(script)
        })
      })
      document.body.append(this.frame)
    }

    postMessage(data) {
      this.loaded.then(inside => inside.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
