/** All heads of a layer as small maps, below the map of one. */

import { headLink } from "./address.js";
import { el, nextFrame, rest } from "./dom.js";
import { kindText } from "./grid.js";
import { thumbnail } from "./map_image.js";
import { loadRows } from "./maps.js";
import { firstOf, places, report } from "./report.js";

const SIDE = 84; // pixels

export class LayerStrip {
  /**
   * @param {number} head
   * @param {number} text
   */
  constructor(head, text) {
    this.text = text;
    this.site = -1;
    /** @type {{head: number, slot: HTMLAnchorElement, picture: HTMLElement}[]} */
    this.slots = [];
    this.element = el("section", { class: "strip" });
    this.show(head);
  }

  /** @param {number} head */
  show(head) {
    if (places[head].site !== this.site) this.fill(places[head].site);
    for (const { head: other, slot } of this.slots) {
      slot.href = headLink(other);
      slot.className = other === head ? "slot on" : "slot";
    }
  }

  /** @param {number} site */
  fill(site) {
    this.site = site;
    const { label, heads } = report.sites[site];
    this.slots = Array.from({ length: heads }, (_, h) => {
      const head = firstOf[site] + h;
      const picture = el("span", { class: "hole" });
      const name = report.heads[head];
      const slot = el("a", { "aria-label": `${name} ${kindText(head)}` }, picture, el("span", { class: "name" }, name));
      return { head, slot, picture };
    });
    this.element.setAttribute("aria-label", `Heads of ${label}`);
    const slots = el("div", { class: "slots" }, this.slots.map(({ slot }) => slot));
    this.element.replaceChildren(el("h3", {}, `All heads of ${label}`), slots);
    this.drawAll();
  }

  /** One picture per frame: the page reacts in between. */
  async drawAll() {
    const { slots } = this;
    if (!report.texts.length) return;
    await rest();
    for (const { head, slot, picture } of slots) {
      await nextFrame();
      if (slots !== this.slots || (slot !== slots[0].slot && !slot.isConnected)) return;
      const map = await loadRows(this.text, head).catch(() => null);
      if (map) picture.replaceChildren(await thumbnail(map, SIDE).catch(() => ""));
    }
  }
}
