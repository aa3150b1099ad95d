// Time travel without loading the page again: the scrubber asks for the part of one moment alone.
// Without this script the same form and links load the page, which holds the moment in its address.
(() => {
  'use strict'
  const form = document.getElementById('travel')
  if (!form) return
  const range = document.getElementById('travel-at')
  const part = document.getElementById('travel-moment')
  const told = document.getElementById('travel-told')
  const shown = form.querySelector('output')
  const moments = [...document.querySelectorAll('#travel-moments a[data-at]')]
  const times = [...new Set(moments.map(link => Number(link.dataset.at)))].sort((a, b) => a - b)
  const steps = {before: document.getElementById('travel-before'), after: document.getElementById('travel-after')}
  const AGAIN_MS = 1000
  const span = document.getElementById('travel-span')
  let at = Number(range.value)
  let asked = 0
  let isAsking = false
  let timer

  const pad = n => String(n).padStart(2, '0')
  const clock = seconds => {
    const all = Math.round(seconds)
    const hours = Math.floor(all / 3600)
    const rest = pad(all % 60)
    return hours ? `${hours}:${pad(Math.floor(all / 60) % 60)}:${rest}` : `${Math.floor(all / 60)}:${rest}`
  }
  const address = moment => {
    const query = new URLSearchParams(new FormData(form))
    query.set('at', moment.toFixed(3))
    return query
  }
  const neighbour = name => name === 'before' ? times.findLast(t => t < at) : times.find(t => t > at)

  function place(moment) {
    at = moment
    range.value = moment
    shown.textContent = clock(moment)
    range.setAttribute('aria-valuetext', `${clock(moment)} after the start`)
    for (const [name, link] of Object.entries(steps)) {
      const next = neighbour(name)
      if (next === undefined) {
        link.removeAttribute('href')
        link.setAttribute('role', 'link')
        link.setAttribute('aria-disabled', 'true')
      } else {
        link.href = `${form.getAttribute('action')}?${address(next)}`
        link.removeAttribute('role')
        link.removeAttribute('aria-disabled')
      }
    }
    for (const link of moments) {
      if (Number(link.dataset.at) === moment) link.setAttribute('aria-current', 'true')
      else link.removeAttribute('aria-current')
    }
  }

  async function ask(moment) {
    const mine = ++asked
    part.setAttribute('aria-busy', 'true')
    isAsking = true
    let answer, text
    try {
      answer = await fetch(`${form.dataset.part}?${address(moment)}`, {credentials: 'same-origin'})
      text = await answer.text()
    } catch {
      if (mine === asked) told.textContent = 'The server gave no answer; what is shown is an earlier moment.'
      return
    } finally {
      if (mine === asked) isAsking = false
    }
    if (mine !== asked) return  // a later moment was asked for
    if (answer.status === 202) {
      told.textContent = text
      timer = setTimeout(() => ask(moment), AGAIN_MS)
      return
    }
    part.removeAttribute('aria-busy')
    if (!answer.ok || answer.redirected) {
      told.textContent = answer.redirected ? 'Load the page again: you are no longer signed in.' : text
    } else {
      part.innerHTML = text  // made by our server, which escapes what is not its own
      told.textContent = part.firstElementChild.dataset.words
    }
    if (at !== moment) ask(at)  // the scrubber has moved on meanwhile
  }

  function go(moment, remember) {
    clearTimeout(timer)
    place(moment)
    const url = `?${address(moment)}`
    if (remember) history.pushState({at: moment}, '', url)
    else history.replaceState({at: moment}, '', url)
    ask(moment)
  }

  range.addEventListener('input', () => {
    clearTimeout(timer)
    place(Number(range.value))
    if (!isAsking) ask(at)  // one at a time: each that is answered asks for where the scrubber then is
  })
  range.addEventListener('change', () => history.replaceState({at}, '', `?${address(at)}`))
  span.addEventListener('change', () => go(at, false))
  form.addEventListener('submit', event => {
    event.preventDefault()
    go(at, true)
  })
  for (const link of moments) {
    link.addEventListener('click', event => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return
      event.preventDefault()
      go(Number(link.dataset.at), true)
    })
  }
  for (const [name, link] of Object.entries(steps)) {
    link.addEventListener('click', event => {
      const next = neighbour(name)
      if (next === undefined || event.ctrlKey || event.metaKey || event.shiftKey) return
      event.preventDefault()
      go(next, true)
    })
  }
  addEventListener('popstate', event => {
    const asks = new URLSearchParams(location.search)
    const moment = event.state?.at ?? Number(asks.get('at') ?? range.max)
    span.value = asks.get('span') ?? ''
    place(moment)
    ask(moment)
  })
  place(at)
})()
